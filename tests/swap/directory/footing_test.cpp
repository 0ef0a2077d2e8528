// What an opening finds may be in memory only: it is durable before anything is built on it, and not written before.
#include "aio/words/error.h"
#include "swap/directory/recovery.h"
#include "swap/snapshot/snapshot_copy.h"
#include "swap/store/blocking.h"

#include "tests/swap/hashing/hashed_by.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>

namespace penstock::testing {
namespace {

class FootingTest : public ::testing::TestWithParam<HashedBy> {
   protected:
    // Generations 0 to 3 are committed; nothing is written after.
    void SetUp() override {
        auto store =
            store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects(), .hashers = hashers.get()});
        place_bytes = manifest_capacity(store->layout());
        for (std::uint64_t generation = 0; generation <= 3; ++generation)
            ASSERT_FALSE(exercise.advance(io, *store, generation));
    }
    std::string file(const char* name) const { return directory.path() + "/" + name; }
    std::string manifest(std::uint64_t generation) const { return file("manifest.") + std::to_string(generation % 2); }
    void damage(std::uint64_t generation, std::uint32_t copy) const {
        flip_bit(manifest(generation), (copy - 1) * place_bytes + 300);
    }
    std::unique_ptr<store::TensorStore> reopen() {
        return store::TensorStore::open(io, {&directory}, {.hashers = hashers.get()});
    }
    // The paths of all writes from now on.
    void watch() {
        changed.clear();
        device.hook = [&](aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
            if (attempt.kind == aio::IoKind::write) changed.push_back(path);
            return std::nullopt;
        };
    }
    std::vector<std::string> contents() const {
        std::vector<std::string> all;
        for (const char* name : {"manifest.0", "manifest.1", "data"}) {
            std::ifstream stream(file(name), std::ios::binary);
            all.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
        }
        return all;
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    std::unique_ptr<store::TileHashers> hashers = hashers_of(GetParam(), io);
    Exercise exercise{7};
    std::uint64_t place_bytes = 0;
    std::vector<std::string> changed;
};

// In the page cache a manifest may be whole whose way to the disk has failed.
TEST_P(FootingTest, WhatIsFoundSurvivesAPowerCutOnceItIsBuiltOn) {
    auto store = reopen();
    device.synchronous_writes_lie = true;
    ASSERT_FALSE(exercise.advance(io, *store, 4));
    device.synchronous_writes_lie = false;
    store = nullptr;
    store = reopen();
    ASSERT_EQ(store->generation(), 4U);
    ASSERT_FALSE(exercise.write(io, *store, 5));  // over the slots of generation 3
    store = nullptr;
    device.cut(Loss::everything);
    store = reopen();
    EXPECT_EQ(store->generation(), 4U);
    EXPECT_EQ(exercise.difference(io, *store, 4), "");
}

TEST_P(FootingTest, TheCopyBesideAWholeOneIsWrittenAgain) {
    for (const std::uint32_t copy : {1U, 2U}) {
        damage(3, copy);
        settle_blocking(io, *reopen());
        const store::Recovery recovery = store::recover(directory.fd(), directory.uuid());
        for (const store::ManifestCopy& one : recovery.copies[1]) {
            EXPECT_EQ(one.state, store::ManifestCopy::State::whole);
            EXPECT_EQ(one.generation, 3U);
        }
    }
}

// Who opens a store, reads and goes, or is killed before the first write, leaves it as it was and has not waited.
TEST_P(FootingTest, AnOpeningWritesNothing) {
    damage(3, 1);
    const std::vector<std::string> before = contents();
    const std::uint64_t changes = device.changes();
    EXPECT_EQ(exercise.difference(io, *reopen(), 3), "");
    EXPECT_EQ(device.changes(), changes);
    const ::pid_t child = ::fork();
    if (child == 0) {
        const auto store = reopen();
        ::_exit(exercise.difference(io, *store, 3).empty() ? 7 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
    EXPECT_TRUE(contents() == before);
}

// Before the first tile, and before a commit without one.
TEST_P(FootingTest, WhatIsFoundIsWrittenAgainAndOnceBeforeAnythingThatIsBuiltOnIt) {
    for (const bool tiles : {true, false}) {
        SCOPED_TRACE(tiles ? "tiles" : "a commit alone");
        watch();
        auto store = reopen();
        const std::uint64_t found = store->generation().value();
        if (tiles) {
            ASSERT_FALSE(exercise.advance(io, *store, found + 1));
        } else {
            ASSERT_FALSE(commit(io, *store, {}));
        }
        ASSERT_GT(changed.size(), 2U);
        EXPECT_EQ(changed.front(), manifest(found));
        EXPECT_EQ(std::count(changed.begin(), changed.end(), manifest(found)), 1);
        EXPECT_EQ(changed[1], tiles ? file("data") : manifest(found + 1));
    }
}

// Of every commit without tiles that is cut short.
TEST_P(FootingTest, ACommitAloneDoesNotLoseWhatWasFound) {
    for (std::uint64_t after = 1; after <= 4; ++after) {
        SCOPED_TRACE(after);
        auto store = reopen();
        const std::uint64_t found = store->generation().value();
        device.synchronous_writes_lie = true;
        ASSERT_FALSE(commit(io, *store, {}));
        device.synchronous_writes_lie = false;
        store = nullptr;
        store = reopen();
        ASSERT_EQ(store->generation(), found + 1);
        device.die_after(after);
        ASSERT_TRUE(commit(io, *store, {}));
        store = nullptr;
        device.cut(Loss::everything);
        store = reopen();
        EXPECT_GE(store->generation(), after == 1 ? found : found + 1);
    }
}

TEST_P(FootingTest, ASnapshotIsOfWhatIsDurable) {
    const auto store = reopen();
    watch();
    store::StoreDirectory target(scratch.file("kept"), "test");
    create_snapshot(io, *store, target, aio::Caching::direct);
    ASSERT_GT(changed.size(), 1U);
    EXPECT_EQ(changed[0], manifest(3));
}

TEST_P(FootingTest, WhatIsGoneBackToIsDurableBeforeAnythingIsErased) {
    damage(3, 1);
    damage(3, 2);
    watch();
    EXPECT_EQ(reopen()->generation(), 2U);
    ASSERT_GT(changed.size(), 1U);
    EXPECT_EQ(changed[0], manifest(2));
    EXPECT_EQ(changed[1], manifest(3));
}

TEST_P(FootingTest, WhatCannotBeWrittenAgainIsNotBuiltOn) {
    device.hook = [&](aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::write) return std::nullopt;
        EXPECT_EQ(path, manifest(3)) << "it was built on";
        return -EIO;
    };
    for (const bool tiles : {true, false}) {
        SCOPED_TRACE(tiles ? "tiles" : "a commit alone");
        const auto store = reopen();
        const auto error = tiles ? exercise.write(io, *store, 4) : commit(io, *store, {});
        ASSERT_TRUE(error);
        EXPECT_EQ(error->kind, store::StoreError::Kind::poisoned);
        EXPECT_NE(error->message.find("the newest manifest cannot be made durable"), std::string::npos)
            << error->message;
        EXPECT_NE(error->message.find(manifest(3)), std::string::npos) << error->message;
        EXPECT_EQ(error->message.find("', tile ") != std::string::npos, tiles) << error->message;
        EXPECT_TRUE(store->poisoned());
        EXPECT_TRUE(commit(io, *store, {}));
        EXPECT_THROW(settle_blocking(io, *store), Error);
        EXPECT_EQ(exercise.difference(io, *store, 3), "");
    }
    device.hook = nullptr;
    const auto store = reopen();
    ASSERT_FALSE(exercise.advance(io, *store, 4));
    EXPECT_EQ(exercise.difference(io, *store, 4), "");
}

INSTANTIATE_TEST_SUITE_P(HashedBy, FootingTest, ::testing::Values(HashedBy::store, HashedBy::at_once), name_of_hashers);

}  // namespace
}  // namespace penstock::testing
