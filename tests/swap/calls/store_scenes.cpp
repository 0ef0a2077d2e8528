// A store is made, opened and committed to.
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "swap/directory/recovery.h"
#include "swap/snapshot/repair.h"
#include "swap/store/verify.h"
#include "tests/swap/calls/call_scene.h"
#include "tests/swap/calls/call_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <utility>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

std::string manifest_of(const std::string& root, std::uint64_t generation) {
    return fmt::format("{}/store0/{}", root, store::manifest_file_names[generation % 2]);
}

// ---------------------------------------------------------------- made

enum class Before : std::uint8_t { nothing, unfinished, lock_only };

class Creation final : public CallScene {
   public:
    Creation(std::string name, std::size_t devices, Before before, CallBackend backend)
        : name_(std::move(name)), devices_(devices), before_(before), backend_(backend) {}

    std::string name() const override { return name_; }
    void prepare(const std::string& root) const override {
        if (before_ == Before::unfinished) make_call_store(paths(root), std::nullopt);
        if (before_ == Before::lock_only) store::OpenStore(paths(root), "calls");
    }
    std::string act(const std::string& root, const CallScope& scope) const override {
        store::OpenStore open = lock_call_store(paths(root), backend_, scope.deadline());
        if (open.committed()) {  // as nobody knows what cannot be read
            open.open();
            return "a store was opened that nothing was committed to";
        }
        store::TensorStore& store = create_call_store(open);
        throw_error(call_exercise.advance(open.io(), store, 0));
        scope.end();
        return call_exercise.difference(open.io(), store, 0);
    }
    std::string check(const std::string& root, bool reported) const override {
        if (reported) return check_call_store(paths(root), {0});
        {
            store::OpenStore open = lock_call_store(paths(root), CallBackend::one_thread);
            if (!open.committed()) throw_error(call_exercise.advance(open.io(), create_call_store(open), 0));
        }
        return check_call_store(paths(root), {0});
    }

   private:
    std::vector<std::string> paths(const std::string& root) const { return call_store_paths(root, devices_); }

    std::string name_;
    std::size_t devices_;
    Before before_;
    CallBackend backend_;
};

// ---------------------------------------------------------------- opened

struct OpeningWays {
    std::size_t devices = 1;
    CallBackend backend = CallBackend::one_thread;
    store::VerifyScope verify = store::VerifyScope::none;
    store::Sharing sharing = store::Sharing::exclusive;
    enum class Asks : std::uint8_t { first, nothing } asks = Asks::first;  // whether there is a store
    std::function<void(const std::string& root)> harm = {};
    std::function<void(const std::string& root)> heal = {};  // without it the harmed store is not opened
};

class Opening final : public CallScene {
   public:
    Opening(std::string name, OpeningWays ways) : name_(std::move(name)), ways_(std::move(ways)) {}

    std::string name() const override { return name_; }
    void prepare(const std::string& root) const override {
        make_call_store(paths(root), newest_generation);
        if (ways_.harm) ways_.harm(root);
    }
    std::string act(const std::string& root, const CallScope& scope) const override {
        store::OpenStore open = ways_.sharing == store::Sharing::shared
                                    ? store::OpenStore::find(paths(root), store::Sharing::shared)
                                    : store::OpenStore(paths(root), "calls");
        start_call_io(open, ways_.backend, scope.deadline());
        if (ways_.asks == OpeningWays::Asks::first && !open.committed()) {  // what programs do then
            create_call_store(open);
            return "a store with a generation counts as none";
        }
        store::TensorStore& store = open.open({.verify = ways_.verify});
        if (store.generation() != newest_generation)
            return fmt::format("generation {} was opened", store.generation().value());
        if (ways_.sharing == store::Sharing::shared) {
            const store::VerifyReport report = verify(open.io(), store, {});
            if (report.damaged_tiles != report.unread_tiles) return "a tile that was not read counts as damaged";
            if (report.damaged_tiles > 0) throw Error(ExitCode::storage, report.damages.front());
        }
        scope.end();
        return call_exercise.difference(open.io(), store, newest_generation);
    }
    std::string check(const std::string& root, bool /*reported*/) const override {
        if (ways_.heal) ways_.heal(root);
        return check_call_store(paths(root), {newest_generation});
    }
    bool is_refused_anyhow() const override { return ways_.heal != nullptr; }

   private:
    std::vector<std::string> paths(const std::string& root) const { return call_store_paths(root, ways_.devices); }

    std::string name_;
    OpeningWays ways_;
};

// A life that ends without a commit: over the slots of the generation before the newest.
void begin_tiles(const std::string& root) {
    store::OpenStore open = lock_call_store(call_store_paths(root, 1), CallBackend::one_thread);
    throw_error(call_exercise.write(open.io(), open.open(), newest_generation + 1));
}

// What a kill within the second copy leaves.
void tear_copy(const std::string& root) {
    const std::string path = manifest_of(root, newest_generation);
    flip_bit(path, fs::file_size(path) / 2 + 300);
}

// What a kill within the first copy of the next commit leaves, with tiles of it in their slots.
void tear_next_copy(const std::string& root) {
    begin_tiles(root);
    flip_bit(manifest_of(root, newest_generation + 1), 300);
}

void take_away(const std::string& path) {
    fs::rename(path, fs::path(path).parent_path().parent_path() / "taken");
}
void put_back(const std::string& path) {
    fs::rename(fs::path(path).parent_path().parent_path() / "taken", path);
}

OpeningWays with_lost_manifest(std::uint64_t generation) {
    return {.harm = [=](const std::string& root) { take_away(manifest_of(root, generation)); },
            .heal = [=](const std::string& root) { put_back(manifest_of(root, generation)); }};
}

// ---------------------------------------------------------------- committed to

class Committing final : public CallScene {
   public:
    // With `room` past the slots, as it is set aside for shared ones.
    Committing(std::string name, CallBackend backend, std::uint64_t room_bytes = 0)
        : name_(std::move(name)), backend_(backend), room_bytes_(room_bytes) {}

    std::string name() const override { return name_; }
    void prepare(const std::string& root) const override {
        make_call_store(call_store_paths(root, 1), newest_generation);
        const std::string data = call_store_paths(root, 1).front() + "/data";
        if (room_bytes_ > 0) fs::resize_file(data, fs::file_size(data) + room_bytes_);
    }
    std::string act(const std::string& root, const CallScope& scope) const override {
        if (room_bytes_ == 0) scope.end();
        store::OpenStore open = lock_call_store(call_store_paths(root, 1), backend_, scope.deadline());
        store::TensorStore& store = open.open();
        scope.begin();
        throw_error(call_exercise.advance(open.io(), store, newest_generation + 1));
        scope.end();
        return call_exercise.difference(open.io(), store, newest_generation + 1);
    }
    std::string check(const std::string& root, bool reported) const override {
        std::vector<std::uint64_t> allowed{newest_generation + 1};
        if (!reported) allowed.push_back(newest_generation);
        return check_call_store(call_store_paths(root, 1), allowed);
    }

   private:
    std::string name_;
    CallBackend backend_;
    std::uint64_t room_bytes_;
};

}  // namespace

void add_store_scenes(CallScenes& scenes) {
    const auto creation = [&](auto... arguments) { scenes.push_back(std::make_unique<Creation>(arguments...)); };
    const auto opening = [&](const char* name, OpeningWays ways) {
        scenes.push_back(std::make_unique<Opening>(name, std::move(ways)));
    };
    creation("create", std::size_t{1}, Before::nothing, CallBackend::one_thread);
    creation("create, best backend", std::size_t{1}, Before::nothing, CallBackend::best);
    creation("create on two devices", std::size_t{2}, Before::nothing, CallBackend::one_thread);
    creation("create over an unfinished one", std::size_t{1}, Before::unfinished, CallBackend::one_thread);
    creation("create where a lock is", std::size_t{1}, Before::lock_only, CallBackend::one_thread);
    opening("open", {});
    opening("open, best backend", {.backend = CallBackend::best});
    opening("open and verify", {.verify = store::VerifyScope::all});
    opening("open two devices", {.devices = 2});
    opening("open with a torn copy", {.harm = tear_copy});
    opening("open with tiles begun", {.harm = begin_tiles});
    opening("open unasked", {.asks = OpeningWays::Asks::nothing});
    opening("open unasked with tiles begun", {.asks = OpeningWays::Asks::nothing, .harm = begin_tiles});
    opening("open with the next copy torn", {.harm = tear_next_copy});
    opening("open without the newest manifest", with_lost_manifest(newest_generation));
    opening("open without the older manifest", with_lost_manifest(newest_generation - 1));
    opening("open with the older manifest empty",
            {.harm = [](const std::string& root) { fs::resize_file(manifest_of(root, newest_generation - 1), 0); }});
    opening("open shared and verify", {.sharing = store::Sharing::shared});
    scenes.push_back(std::make_unique<Committing>("commit", CallBackend::one_thread));
    scenes.push_back(std::make_unique<Committing>("open and commit beside room", CallBackend::one_thread, 1U << 20));
    scenes.push_back(std::make_unique<Committing>("commit, best backend", CallBackend::best));
}

}  // namespace penstock::testing
