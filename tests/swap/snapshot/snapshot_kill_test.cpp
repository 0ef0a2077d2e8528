// A process that commits generation after generation and keeps some of them meanwhile is killed at random instants.
#include "swap/snapshot/snapshot_copy.h"

#include "swap/directory/snapshot_list.h"
#include "tests/child.h"
#include "tests/seeds.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <fmt/format.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <thread>

namespace penstock::testing {
namespace {

struct Told {
    std::uint64_t generation = 0;
    bool kept = false;  // else committed
};

// In the child, for ever: keeps the newest generation while it commits the next ones, then the newest one again.
int commit_copy_and_tell(const TemporaryDirectory& scratch, const Exercise& exercise, const Child::Say& say) {
    store::StoreDirectory directory(scratch.file("store"), "kill");
    aio::Io io(aio::open_backend(directory.lock_fd(), {}).backend, {});
    const bool fresh = directory.content() != store::DirectoryContent::committed;
    const auto store = fresh ? store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()})
                             : store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all});
    const aio::ScratchMemory memory(2 * 16'384);
    const auto tell = [&](const Told& told) { say({reinterpret_cast<const char*>(&told), sizeof told}); };
    const auto advance = [&] {
        const std::uint64_t next = store->generation() ? *store->generation() + 1 : 0;
        if (exercise.advance(io, *store, next)) return false;
        tell({.generation = next, .kept = false});
        return true;
    };
    if (!store->generation() && !advance()) return 1;
    for (;;) {
        const std::uint64_t kept = *store->generation();
        store::StoreDirectory target(scratch.file("kept") + "/" + std::to_string(kept), "kill");
        if (target.content() != store::DirectoryContent::committed) {
            store::SnapshotCopy copying(*store, create_snapshot(io, *store, target, aio::Caching::direct),
                                        memory.span());
            while (!copying.finished()) {
                if (!advance()) return 2;
            }
            if (copying.error()) return 3;
            tell({.generation = kept, .kept = true});
        }
        if (!advance()) return 4;
    }
}

class SnapshotKillTest : public ::testing::Test {
   protected:
    SnapshotKillTest() { std::filesystem::create_directory(folder()); }
    std::string folder() const { return scratch_.file("kept"); }

    // Runs a child, kills it after the pause, and returns what it told.
    std::vector<Told> run_and_kill(const Exercise& exercise, std::chrono::microseconds pause) const {
        Child child([&](const Child::Say& say) {
            throw std::runtime_error(fmt::format("{}", commit_copy_and_tell(scratch_, exercise, say)));
        });
        std::this_thread::sleep_for(pause);
        child.kill();
        const ChildEnd end = child.end();
        EXPECT_TRUE(WIFSIGNALED(end.status)) << "the child ended by itself: " << end.complaint;
        std::vector<Told> all(end.said.size() / sizeof(Told));
        if (!all.empty()) std::memcpy(all.data(), end.said.data(), all.size() * sizeof(Told));
        return all;
    }

    void check_snapshot(const Exercise& exercise, const store::ListedSnapshot& snapshot) {
        store::StoreDirectory directory = store::StoreDirectory::find(snapshot.path, store::Sharing::shared);
        aio::Io io(aio::make_thread_backend({}), {});
        const auto copy = store::TensorStore::open(io, {&directory});
        EXPECT_EQ(exercise.difference(io, *copy, snapshot.manifest->origin->generation), "") << snapshot.name;
    }

    void check_store(const Exercise& exercise, std::uint64_t last_told) {
        store::StoreDirectory directory(scratch_.file("store"), "kill");
        aio::Io io(aio::make_thread_backend({}), {});
        const auto store = store::TensorStore::open(io, {&directory}, {.verify = store::VerifyScope::all});
        EXPECT_GE(*store->generation(), last_told);
        EXPECT_EQ(exercise.difference(io, *store, *store->generation()), "");
    }

   private:
    TemporaryDirectory scratch_;
};

TEST_F(SnapshotKillTest, AfterAnyKillEachSnapshotIsWholeOrUnfinishedAndReclaimed) {
    const std::uint64_t seed = first_seed();
    std::mt19937_64 random(seed);
    const Exercise exercise(seed);
    std::uint64_t unfinished = 0;
    std::uint64_t finished = 0;
    // Until kills fell on both sides of the end of a copy, later and later on a machine that is slow.
    for (std::uint64_t kill = 0; kill < 20 || (kill < 200 && (finished == 0 || unfinished == 0)); ++kill) {
        SCOPED_TRACE(fmt::format("{}, kill {}", replay(seed), kill));
        std::optional<std::uint64_t> committed;
        std::vector<std::string> kept;
        const std::chrono::microseconds pause(random() % (80'000 * (1 + kill / 20)));
        for (const Told told : run_and_kill(exercise, pause)) {
            if (told.kept) kept.push_back(std::to_string(told.generation));
            if (!told.kept) committed = told.generation;
        }
        std::map<std::string, store::ListedSnapshot> found;
        for (const store::ListedSnapshot& snapshot : store::list_snapshots(folder())) found[snapshot.name] = snapshot;
        for (const std::string& name : kept) ASSERT_TRUE(found[name].manifest) << name << ": " << found[name].problem;
        for (const auto& [name, snapshot] : found) {
            ++(snapshot.manifest ? finished : unfinished);
            if (snapshot.manifest) check_snapshot(exercise, snapshot);
            EXPECT_TRUE(snapshot.manifest || snapshot.problem.find("unfinished") == 0) << snapshot.problem;
            // Now and then what is unfinished stays, and the next life keeps over it if it comes to that generation.
            if (snapshot.manifest || random() % 2 == 0) store::remove_snapshot(snapshot.path);
        }
        if (committed) check_store(exercise, *committed);
        if (HasFatalFailure() || HasNonfatalFailure()) return;
    }
    EXPECT_GT(finished, 0U);
    EXPECT_GT(unfinished, 0U);
    std::cout << "snapshots finished " << finished << ", unfinished " << unfinished << '\n';
}

}  // namespace
}  // namespace penstock::testing
