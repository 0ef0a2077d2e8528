// Snapshots are copied, listed and removed; a store is looked at and repaired.
#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/recovery.h"
#include "swap/directory/snapshot_list.h"
#include "swap/directory/store_look.h"
#include "swap/snapshot/repair.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"
#include "tests/swap/calls/call_scene.h"
#include "tests/swap/calls/call_store.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

std::string store_path(const std::string& root) {
    return call_store_paths(root, 1).front();
}
std::string folder_of(const std::string& root) {
    return root + "/kept";
}
std::string snapshot_path(const std::string& root, const std::string& name) {
    return folder_of(root) + "/" + name;
}

// As `penstock ckpt keep` does it.
void keep(const std::string& root, const std::string& name, std::chrono::nanoseconds deadline) {
    store::OpenStore from = store::OpenStore::find({store_path(root)}, store::Sharing::shared);
    start_call_io(from, CallBackend::one_thread, deadline);
    from.open();
    store::StoreDirectory target(snapshot_path(root, name), "calls");
    if (target.content() == store::DirectoryContent::committed)
        throw Error(ExitCode::storage, target.path() + ": it is there already; choose another name");
    const auto to = create_snapshot(from.io(), from.store(), target, aio::Caching::direct);
    copy_tiles(from.io(), from.store(), *to, {});
    commit_blocking(from.io(), *to, from.store().client());
}

std::string check_snapshot(const std::string& root, const std::string& name) {
    store::OpenStore open = store::OpenStore::find({snapshot_path(root, name)}, store::Sharing::shared);
    start_call_io(open, CallBackend::one_thread);
    return call_exercise.difference(open.io(), open.open({.verify = store::VerifyScope::all}), newest_generation);
}

void leave_unfinished(const std::string& root, const std::string& name) {
    store::OpenStore from = store::OpenStore::find({store_path(root)}, store::Sharing::shared);
    start_call_io(from, CallBackend::one_thread);
    from.open();
    store::StoreDirectory target(snapshot_path(root, name), "calls");
    create_snapshot(from.io(), from.store(), target, aio::Caching::direct);
}

void prepare_snapshots(const std::string& root) {
    make_call_store({store_path(root)}, newest_generation);
    fs::create_directory(folder_of(root));
    keep(root, "first", aio::default_deadline);
    leave_unfinished(root, "second");
    fs::create_directory(snapshot_path(root, "other"));  // no store's
}

// ---------------------------------------------------------------- copied

class Keeping final : public CallScene {
   public:
    std::string name() const override { return "keep a snapshot"; }
    void prepare(const std::string& root) const override {
        make_call_store({store_path(root)}, newest_generation);
        fs::create_directory(folder_of(root));
    }
    std::string act(const std::string& root, const CallScope& scope) const override {
        keep(root, "first", scope.deadline());
        return {};
    }
    std::string check(const std::string& root, bool reported) const override {
        if (!reported) {
            const std::vector<store::ListedSnapshot> all = store::list_snapshots(folder_of(root));
            if (!all.empty() && !all.front().manifest) store::remove_snapshot(all.front().path);
            if (all.empty() || !all.front().manifest) keep(root, "first", aio::default_deadline);
        }
        if (std::string difference = check_snapshot(root, "first"); !difference.empty()) return difference;
        return check_call_store({store_path(root)}, {newest_generation});
    }
};

// While the store goes on to its next generation.
class KeepingBeside final : public CallScene {
   public:
    std::string name() const override { return "keep beside a commit"; }
    void prepare(const std::string& root) const override { Keeping().prepare(root); }
    std::string act(const std::string& root, const CallScope& scope) const override {
        scope.end();
        store::OpenStore open = lock_call_store({store_path(root)}, CallBackend::one_thread, scope.deadline());
        store::TensorStore& store = open.open();
        scope.begin();
        store::StoreDirectory target(snapshot_path(root, "first"), "calls");
        auto to = create_snapshot(open.io(), store, target, aio::Caching::direct, store::Blocks::shared);
        const aio::ScratchMemory memory(4 * 16'384);
        store::SnapshotCopy copy(store, std::move(to), memory.span());
        const auto error = call_exercise.advance(open.io(), store, newest_generation + 1);
        while (!copy.finished()) open.io().wait(std::chrono::seconds(1));
        scope.end();
        throw_error(error);
        throw_error(copy.error());
        return call_exercise.difference(open.io(), store, newest_generation + 1);
    }
    std::string check(const std::string& root, bool reported) const override {
        if (reported) {
            if (std::string difference = check_snapshot(root, "first"); !difference.empty()) return difference;
        } else {
            for (const store::ListedSnapshot& snapshot : store::list_snapshots(folder_of(root))) {
                const std::string difference = snapshot.manifest ? check_snapshot(root, "first") : std::string();
                if (!difference.empty()) return difference;
                store::remove_snapshot(snapshot.path);
            }
        }
        std::vector<std::uint64_t> allowed{newest_generation + 1};
        if (!reported) allowed.push_back(newest_generation);
        return check_call_store({store_path(root)}, allowed);
    }
};

// ---------------------------------------------------------------- listed

class Listing final : public CallScene {
   public:
    std::string name() const override { return "list snapshots"; }
    void prepare(const std::string& root) const override { prepare_snapshots(root); }
    std::string act(const std::string& root, const CallScope& scope) const override {
        const std::vector<store::ListedSnapshot> all = store::list_snapshots(folder_of(root));
        scope.end();
        std::string told;
        for (const store::ListedSnapshot& one : all) {
            if (one.problem.find(root) != std::string::npos || one.problem.find("(E") != std::string::npos) {
                told += one.problem;
                continue;
            }
            const bool right = one.name == "first"    ? one.manifest && one.manifest->origin && one.problem.empty()
                               : one.name == "second" ? !one.manifest && one.problem.starts_with("unfinished")
                                                      : false;
            if (!right) return fmt::format("'{}' is listed wrong: '{}'", one.name, one.problem);
            if (one.disk_bytes < 1'000'000)
                return fmt::format("'{}' is listed with {} bytes", one.name, one.disk_bytes);
        }
        const auto is_listed = [&](const char* name) {
            return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
        };
        if (!is_listed("first") || !is_listed("second")) return "a snapshot is not listed";
        if (!told.empty()) throw Error(ExitCode::storage, told);
        return {};
    }
    std::string check(const std::string& root, bool /*reported*/) const override {
        return check_snapshot(root, "first");
    }
};

// ---------------------------------------------------------------- removed

class Removing final : public CallScene {
   public:
    explicit Removing(std::string victim) : victim_(std::move(victim)) {}
    std::string name() const override { return fmt::format("remove the {} snapshot", victim_); }
    void prepare(const std::string& root) const override { prepare_snapshots(root); }
    std::string act(const std::string& root, const CallScope& scope) const override {
        store::remove_snapshot(snapshot_path(root, victim_), scope.deadline());
        return {};
    }
    std::string check(const std::string& root, bool reported) const override {
        const std::string path = snapshot_path(root, victim_);
        if (reported && fs::exists(path)) return "what was removed is still there";
        if (!reported && fs::exists(path)) {
            for (const store::ListedSnapshot& one : store::list_snapshots(folder_of(root))) {
                if (one.name != victim_) continue;
                const std::string difference = one.manifest ? check_snapshot(root, victim_) : std::string();
                if (!difference.empty()) return difference;
            }
            if (!fs::is_empty(path)) store::remove_snapshot(path);
        }
        if (victim_ != "first") return check_snapshot(root, "first");
        return check_call_store({store_path(root)}, {newest_generation});
    }

   private:
    std::string victim_;
};

// ---------------------------------------------------------------- repaired

class Repairing final : public CallScene {
   public:
    std::string name() const override { return "repair manifests"; }
    void prepare(const std::string& root) const override {
        make_call_store({store_path(root)}, newest_generation);
        const std::string newest = manifest(root, newest_generation);
        flip_bit(newest, fs::file_size(newest) / 2 + 300);
        flip_bit(manifest(root, newest_generation - 1), 300);
        const std::string older = manifest(root, newest_generation - 1);
        fs::resize_file(older, fs::file_size(older) + 4096);
    }
    std::string act(const std::string& root, const CallScope& scope) const override {
        const auto directory = store::StoreDirectory::find(store_path(root), store::Sharing::exclusive);
        store::repair_manifests(directory, scope.deadline());
        scope.end();
        const store::Recovery after = store::recover(directory);
        return after.problems(directory.path()).empty() && !after.doubtful() ? "" : "a manifest is still damaged";
    }
    std::string check(const std::string& root, bool /*reported*/) const override {
        return check_call_store({store_path(root)}, {newest_generation});
    }

   private:
    static std::string manifest(const std::string& root, std::uint64_t generation) {
        return store_path(root) + "/" + store::manifest_file_names[generation % 2];
    }
};

// ---------------------------------------------------------------- looked at

class Looking final : public CallScene {
   public:
    std::string name() const override { return "look at a store"; }
    void prepare(const std::string& root) const override { make_call_store({store_path(root)}, newest_generation); }
    std::string act(const std::string& root, const CallScope& scope) const override {
        scope.end();
        const store::Descriptor directory(::open(store_path(root).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        scope.begin();
        const auto look = store::look_at_store(directory.get(), store_path(root));
        scope.end();
        if (!look) return "a store was not seen";
        const std::vector<std::string> problems = look->problems();
        if (!problems.empty()) throw Error(ExitCode::storage, fmt::format("{}; check it", problems.front()));
        if (look->recovery.newest.value().generation != newest_generation) return "an older generation was seen";
        return {};
    }
    std::string check(const std::string& root, bool /*reported*/) const override {
        return check_call_store({store_path(root)}, {newest_generation});
    }
};

}  // namespace

void add_snapshot_scenes(CallScenes& scenes) {
    scenes.push_back(std::make_unique<Keeping>());
    scenes.push_back(std::make_unique<KeepingBeside>());
    scenes.push_back(std::make_unique<Listing>());
    scenes.push_back(std::make_unique<Removing>("first"));
    scenes.push_back(std::make_unique<Removing>("second"));
    scenes.push_back(std::make_unique<Repairing>());
    scenes.push_back(std::make_unique<Looking>());
}

}  // namespace penstock::testing
