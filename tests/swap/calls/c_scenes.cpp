// A store through penstock.h; and the profile of a device.
#include "aio/profile.h"
#include "aio/words/error.h"
#include "swap/capi/penstock.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/swap/calls/call_scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace penstock::testing {
namespace {

constexpr std::uint64_t object_bytes = 100'000;
constexpr penstock_range whole_object{.object = 0, .first_tile = 0, .tile_count = 0};

void require_ok(penstock_status status, const char* message) {
    if (status != PENSTOCK_OK) throw Error(static_cast<ExitCode>(std::min<int>(status, 5)), message);
}

penstock_result empty_result() {
    penstock_result result{};
    result.struct_bytes = sizeof result;
    return result;
}

struct CloseStore {
    void operator()(penstock_store* store) const { penstock_store_close(store, nullptr); }
};
struct DestroyPool {
    void operator()(penstock_pool* pool) const { penstock_pool_destroy(pool, nullptr); }
};
struct ReleaseLease {
    void operator()(penstock_lease* lease) const { penstock_lease_release(lease); }
};

// A program with one object, of which each generation has other bytes. Throws what it is refused with.
class CProgram {
   public:
    CProgram(const std::string& root, penstock_mode mode, penstock_backend backend,
             std::chrono::milliseconds deadline = aio::default_deadline) {
        const std::string directory = root + "/store0";
        const char* const names[] = {directory.c_str()};
        const penstock_object object{.name = "weights", .bytes = object_bytes, .tile_bytes = 16'384};
        penstock_store_options options{};
        options.struct_bytes = sizeof options;
        options.directories = names;
        options.directory_count = 1;
        options.job = "calls";
        options.mode = mode;
        options.verify = PENSTOCK_VERIFY_SAMPLE;
        options.objects = &object;
        options.object_count = 1;
        options.object_struct_bytes = sizeof object;
        options.backend = backend;
        options.deadline_ms = static_cast<std::uint64_t>(deadline.count());
        penstock_store* opened = nullptr;
        require_ok(penstock_store_open(&options, &opened, &error_), error_.message);
        store_.reset(opened);
        penstock_pool* made = nullptr;
        require_ok(penstock_pool_create(1 << 20, &made, &error_), error_.message);
        pool_.reset(made);
        penstock_lease* leased = nullptr;
        require_ok(penstock_lease_acquire(pool_.get(), object_bytes, &leased, &error_), error_.message);
        lease_.reset(leased);
    }
    ~CProgram() {
        while (take(0) == PENSTOCK_OK) continue;
    }
    CProgram(const CProgram&) = delete;
    CProgram& operator=(const CProgram&) = delete;

    std::optional<std::uint64_t> generation() {
        std::uint64_t found = 0;
        if (penstock_generation(store_.get(), &found, &error_) != PENSTOCK_OK) return std::nullopt;
        return found;
    }
    void write(std::uint64_t generation) {
        aio::fill_random(bytes(), generation);
        require_ok(penstock_write(store_.get(), whole_object, memory(), PENSTOCK_URGENCY_DEFAULT, nullptr, &error_),
                   error_.message);
        finish();
        require_ok(penstock_commit(store_.get(), nullptr, &error_), error_.message);
        finish();
    }
    std::string difference(std::uint64_t generation) {
        std::fill(bytes().begin(), bytes().end(), std::byte{0});
        require_ok(penstock_read(store_.get(), whole_object, memory(), PENSTOCK_DEMAND, nullptr, &error_),
                   error_.message);
        finish();
        const aio::ScratchMemory expected(object_bytes);
        aio::fill_random(expected.span().first(object_bytes), generation);
        const bool same = std::equal(bytes().begin(), bytes().end(), expected.data());
        return same ? "" : fmt::format("the bytes are not those of generation {}", generation);
    }

   private:
    penstock_memory memory() const { return penstock_lease_memory(lease_.get()); }
    std::span<std::byte> bytes() const { return {static_cast<std::byte*>(memory().data), object_bytes}; }
    penstock_status take(std::int64_t timeout_ms) { return penstock_next(store_.get(), timeout_ms, &result_, &error_); }
    void finish() {
        require_ok(take(-1), error_.message);
        require_ok(result_.status, result_.message);
    }

    std::unique_ptr<penstock_pool, DestroyPool> pool_;
    std::unique_ptr<penstock_lease, ReleaseLease> lease_;
    std::unique_ptr<penstock_store, CloseStore> store_;
    penstock_result result_ = empty_result();
    penstock_error error_{};
};

class COpening final : public CallScene {
   public:
    explicit COpening(penstock_backend backend) : backend_(backend) {}
    std::string name() const override {
        return backend_ == PENSTOCK_BACKEND_BEST ? "C: open, best backend" : "C: open";
    }
    void prepare(const std::string& root) const override {
        CProgram program(root, PENSTOCK_CREATE, PENSTOCK_BACKEND_THREADS);
        for (std::uint64_t generation = 0; generation <= newest; ++generation) program.write(generation);
    }
    std::string act(const std::string& root, const CallScope& scope) const override {
        CProgram program(root, PENSTOCK_OPEN_OR_CREATE, backend_, scope.deadline());
        if (program.generation() != newest) return "another generation was opened";
        program.write(newest + 1);
        scope.end();
        return program.difference(newest + 1);
    }
    std::string check(const std::string& root, bool reported) const override {
        CProgram program(root, PENSTOCK_OPEN, PENSTOCK_BACKEND_THREADS);
        const std::uint64_t found = program.generation().value();
        if (found != newest + 1 && (reported || found != newest)) return fmt::format("generation {} was found", found);
        return program.difference(found);
    }

   private:
    static constexpr std::uint64_t newest = 2;
    penstock_backend backend_;
};

class CCreating final : public CallScene {
   public:
    std::string name() const override { return "C: create"; }
    void prepare(const std::string&) const override {}
    std::string act(const std::string& root, const CallScope& scope) const override {
        CProgram program(root, PENSTOCK_OPEN_OR_CREATE, PENSTOCK_BACKEND_THREADS, scope.deadline());
        program.write(0);
        scope.end();
        return program.difference(0);
    }
    std::string check(const std::string& root, bool reported) const override {
        CProgram program(root, reported ? PENSTOCK_OPEN : PENSTOCK_OPEN_OR_CREATE, PENSTOCK_BACKEND_THREADS);
        if (!program.generation()) program.write(0);
        return program.difference(0);
    }
};

class ProfileWriting final : public CallScene {
   public:
    std::string name() const override { return "write a profile"; }
    void prepare(const std::string& root) const override { aio::write_profile(path(root), profile(1)); }
    std::string act(const std::string& root, const CallScope&) const override {
        aio::write_profile(path(root), profile(2));
        const auto found = aio::find_profile(root);  // none where a folder cannot be looked into: that costs speed only
        return !found || found->profile.read_in_flight_bytes == profile(2).read_in_flight_bytes
                   ? ""
                   : "another profile was found";
    }
    std::string check(const std::string& root, bool reported) const override {
        const auto found = aio::find_profile(root);
        if (!found) return "there is no profile";
        const std::uint64_t bytes = found->profile.read_in_flight_bytes;
        const bool right =
            bytes == profile(2).read_in_flight_bytes || (!reported && bytes == profile(1).read_in_flight_bytes);
        return right ? "" : "the profile is another one";
    }

   private:
    static std::string path(const std::string& root) { return root + "/" + aio::profile_name; }
    static aio::DeviceProfile profile(std::uint64_t number) {
        aio::DeviceProfile profile;
        profile.made = "today";
        profile.machine = "this one";
        profile.block_bytes = 1U << 20;
        profile.read_in_flight_bytes = number << 24;
        profile.write_in_flight_bytes = number << 24;
        return profile;
    }
};

}  // namespace

void add_c_scenes(CallScenes& scenes) {
    scenes.push_back(std::make_unique<CCreating>());
    scenes.push_back(std::make_unique<COpening>(PENSTOCK_BACKEND_THREADS));
    scenes.push_back(std::make_unique<COpening>(PENSTOCK_BACKEND_BEST));
    scenes.push_back(std::make_unique<ProfileWriting>());
}

}  // namespace penstock::testing
