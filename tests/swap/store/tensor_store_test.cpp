#include "swap/store/tensor_store.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include "swap/store/blocking.h"
#include "tests/swap/hashing/hashed_by.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::testing {
namespace {

using Directories = std::vector<store::StoreDirectory*>;

class TensorStoreTest : public ::testing::TestWithParam<HashedBy> {
   protected:
    std::unique_ptr<store::TensorStore> create() {
        return store::TensorStore::create(
            io, {&directory},
            {.objects = Exercise::objects(), .caching = aio::Caching::direct, .hashers = hashers.get()});
    }
    std::unique_ptr<store::TensorStore> reopen() {
        return store::TensorStore::open(io, {&directory}, {.hashers = hashers.get()});
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    std::unique_ptr<store::TileHashers> hashers = hashers_of(GetParam(), io);
    Exercise exercise{7};
};

TEST_P(TensorStoreTest, WhatWasCommittedIsThereAfterReopening) {
    EXPECT_EQ(directory.content(), store::DirectoryContent::nothing);
    auto store = create();
    EXPECT_EQ(directory.content(), store::DirectoryContent::unfinished);
    EXPECT_FALSE(store->generation());
    EXPECT_FALSE(store->written({0, 0}));
    for (std::uint64_t generation = 0; generation < 5; ++generation) {
        ASSERT_FALSE(exercise.advance(io, *store, generation));
        EXPECT_EQ(store->generation(), generation);
        EXPECT_EQ(directory.content(), store::DirectoryContent::committed);
        EXPECT_EQ(exercise.difference(io, *store, generation), "");
        const std::uint64_t incarnation = store->incarnation();
        store.reset();
        store = reopen();
        EXPECT_EQ(store->generation(), generation);
        EXPECT_GT(store->incarnation(), incarnation);
        EXPECT_EQ(store->layout().objects(), Exercise::objects());
        EXPECT_EQ(exercise.difference(io, *store, generation), "");
        EXPECT_TRUE(notes_of(*store).empty()) << notes_of(*store).front();
    }
}

TEST_P(TensorStoreTest, PendingWritesAreReadBackButVanishWithoutACommit) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    ASSERT_FALSE(exercise.write(io, *store, 1));
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
    store = nullptr;
    store = reopen();
    EXPECT_EQ(store->generation(), 0U);
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
    // The abandoned generation 1 is simply written again.
    ASSERT_FALSE(exercise.advance(io, *store, 1));
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
}

TEST_P(TensorStoreTest, RewritingATileInOneGenerationNeverTouchesTheCommittedSlot) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    const std::uint64_t committed = store->location({0, 1}).offset_bytes;
    aio::ScratchMemory memory(store->extent_bytes({0, 1}));
    for (std::uint64_t i = 1; i < 6; ++i) {
        exercise.fill(memory.span(), {0, 1}, 100 + i);
        ASSERT_FALSE(write_tile(io, *store, {0, 1}, memory.span()));
        EXPECT_NE(store->location({0, 1}).offset_bytes, committed);
    }
    store = nullptr;
    store = reopen();
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_P(TensorStoreTest, AWriteThatIsTakenBackIsNoPartOfTheNextGeneration) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    const std::uint64_t bytes = store->extent_bytes({0, 1});
    aio::ScratchMemory committed(bytes), memory(bytes), found(bytes);
    ASSERT_FALSE(read_tile(io, *store, {0, 1}, committed.span()));
    const auto holds = [&](const aio::ScratchMemory& wanted) {
        return !read_tile(io, *store, {0, 1}, found.span()) && std::ranges::equal(found.span(), wanted.span());
    };
    for (const bool again : {false, true}) {
        for (std::uint64_t i = 1; i < 4; ++i) {
            exercise.fill(memory.span(), {0, 1}, 100 + i);
            ASSERT_FALSE(write_tile(io, *store, {0, 1}, memory.span()));
            EXPECT_TRUE(holds(memory));
            store->take_back({0, 1});
            EXPECT_TRUE(holds(committed));
        }
        if (again) {
            ASSERT_FALSE(write_tile(io, *store, {0, 1}, memory.span()));
        }
        ASSERT_FALSE(commit(io, *store, {}));
        store = nullptr;
        store = reopen();
        EXPECT_TRUE(holds(again ? memory : committed));
        store->take_back({0, 1});  // nothing was written of it
        EXPECT_TRUE(holds(again ? memory : committed));
    }
}

TEST_P(TensorStoreTest, AFailedWriteThatIsTakenBackHoldsTheCommitUpUntilItIsWrittenAgain) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    aio::ScratchMemory memory(store->extent_bytes({1, 2}));
    exercise.fill(memory.span(), {1, 2}, 1);
    device.hook = [](const aio::Attempt& attempt, const std::string&) {
        return attempt.kind == aio::IoKind::write ? std::optional<std::int32_t>(-ENOSPC) : std::nullopt;
    };
    ASSERT_TRUE(write_tile(io, *store, {1, 2}, memory.span()));
    device.hook = {};
    store->take_back({1, 2});
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
    EXPECT_TRUE(commit(io, *store, {}));
    ASSERT_FALSE(exercise.advance(io, *store, 1));
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
}

TEST_P(TensorStoreTest, ATileThatWasNeverCommittedIsNeverWrittenOnceItIsTakenBack) {
    auto store = create();
    aio::ScratchMemory memory(store->extent_bytes({0, 1}));
    ASSERT_FALSE(write_tile(io, *store, {0, 1}, memory.span()));
    EXPECT_TRUE(store->written({0, 1}));
    store->take_back({0, 1});
    EXPECT_FALSE(store->written({0, 1}));
}

TEST_P(TensorStoreTest, ACommitWithoutWritesKeepsEveryTileAndTakesTheClientState) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    ASSERT_FALSE(commit(io, *store, {{"generation", "1"}, {"skipped", "yes"}}));
    ASSERT_FALSE(commit(io, *store, {{"generation", "2"}}));
    store = nullptr;
    store = reopen();
    EXPECT_EQ(store->generation(), 2U);
    EXPECT_EQ(store->client(), (store::ClientState{{"generation", "2"}}));
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_P(TensorStoreTest, ResultsComeFromPollingAndOnlyOnce) {
    auto store = create();
    TestTile tile;
    TestCommit commit;
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    store->write(tile, {0, 0}, memory.span(), aio::Urgency::write_back);
    EXPECT_EQ(tile.finished, 0);
    while (!tile.idle()) io.wait(std::chrono::seconds(1));
    EXPECT_EQ(tile.finished, 1);
    store->commit(commit, {});
    EXPECT_EQ(commit.finished, 0);
    while (!commit.idle()) io.wait(std::chrono::seconds(1));
    io.poll();
    EXPECT_EQ(commit.finished, 1);
    EXPECT_EQ(tile.finished, 1);
}

TEST_P(TensorStoreTest, ReadsMayGoOnDuringACommit) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    ASSERT_FALSE(exercise.write(io, *store, 1));
    TestCommit commit;
    store->commit(commit, {{"generation", "1"}});
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
    while (!commit.idle()) io.wait(std::chrono::seconds(1));
    EXPECT_FALSE(commit.error());
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
}

TEST_P(TensorStoreTest, AFailedFlushPoisonsForGoodAndIsNotRetried) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    int flushes = 0;
    device.hook = [&](const aio::Attempt& attempt, const std::string&) -> std::optional<std::int32_t> {
        if (attempt.kind != aio::IoKind::flush) return std::nullopt;
        return ++flushes == 1 ? std::optional(-EIO) : std::nullopt;
    };
    const auto error = exercise.advance(io, *store, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, store::StoreError::Kind::poisoned);
    EXPECT_NE(error->message.find(directory.path() + "/data"), std::string::npos) << error->message;
    EXPECT_NE(error->message.find("EIO"), std::string::npos) << error->message;
    for (int i = 0; i < 2; ++i) {
        const auto again = exercise.advance(io, *store, 1);
        ASSERT_TRUE(again);
        EXPECT_EQ(again->kind, store::StoreError::Kind::poisoned);
    }
    EXPECT_EQ(flushes, 1);
    EXPECT_EQ(store->generation(), 0U);
    store = nullptr;
    device.hook = {};
    store = reopen();
    EXPECT_EQ(store->generation(), 0U);
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_P(TensorStoreTest, AFailedManifestWritePoisonsAndTheLastGenerationStaysWhole) {
    for (const int failing_copy : {1, 2}) {
        auto store = directory.content() == store::DirectoryContent::committed ? reopen() : create();
        const std::uint64_t generation = store->generation() ? *store->generation() + 1 : 0;
        ASSERT_FALSE(exercise.advance(io, *store, generation));
        int copies = 0;
        device.hook = [&](const aio::Attempt& attempt, const std::string& path) -> std::optional<std::int32_t> {
            if (attempt.kind != aio::IoKind::write || path.find("manifest") == std::string::npos) return std::nullopt;
            return ++copies == failing_copy ? std::optional(-EIO) : std::nullopt;
        };
        EXPECT_EQ(exercise.advance(io, *store, generation + 1)->kind, store::StoreError::Kind::poisoned);
        EXPECT_EQ(exercise.advance(io, *store, generation + 1)->kind, store::StoreError::Kind::poisoned);
        // Other bytes: they must not get where a manifest that is whole has its tiles.
        EXPECT_TRUE(store->poisoned());
        EXPECT_EQ(Exercise(8).write(io, *store, generation + 1)->kind, store::StoreError::Kind::poisoned);
        EXPECT_EQ(store->generation(), generation);
        store = nullptr;
        device.hook = {};
        store = reopen();
        // Copy 1 was whole before copy 2 failed: that generation may be recovered.
        EXPECT_EQ(store->generation(), failing_copy == 1 ? generation : generation + 1);
        EXPECT_EQ(exercise.difference(io, *store, *store->generation()), "");
    }
}

TEST_P(TensorStoreTest, ATileThatCouldNotBeWrittenHoldsTheCommitUpUntilItIsWrittenAgain) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    aio::ScratchMemory memory(store->extent_bytes({1, 2}));
    exercise.fill(memory.span(), {1, 2}, 1);
    device.hook = [](const aio::Attempt& attempt, const std::string&) {
        return attempt.kind == aio::IoKind::write ? std::optional<std::int32_t>(-ENOSPC) : std::nullopt;
    };
    const auto error = write_tile(io, *store, {1, 2}, memory.span());
    device.hook = {};
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind, store::StoreError::Kind::io);
    EXPECT_NE(error->message.find("ENOSPC"), std::string::npos) << error->message;
    EXPECT_NE(error->message.find("'block.states', tile 2"), std::string::npos) << error->message;
    EXPECT_EQ(read_tile(io, *store, {1, 2}, memory.span())->kind, store::StoreError::Kind::damaged);
    const auto refused = commit(io, *store, {{"generation", "1"}});
    ASSERT_TRUE(refused);
    EXPECT_EQ(refused->kind, store::StoreError::Kind::io);
    EXPECT_NE(refused->message.find("'block.states', tile 2"), std::string::npos) << refused->message;
    EXPECT_EQ(store->generation(), 0U);
    ASSERT_FALSE(exercise.advance(io, *store, 1));  // writes it among others
    EXPECT_EQ(store->generation(), 1U);
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
}

TEST_P(TensorStoreTest, AClientStateThatIsTooLongChangesNothing) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    TestCommit operation;
    EXPECT_THROW(store->commit(operation, {{"k", std::string(store::max_client_bytes, 'x')}}), Error);
    EXPECT_TRUE(operation.idle());
    EXPECT_EQ(store->client().at("generation"), "0");
    ASSERT_FALSE(exercise.advance(io, *store, 1));
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
}

TEST_P(TensorStoreTest, ACommittedStoreIsNotCreatedOver) {
    auto store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    store = nullptr;
    EXPECT_THROW(create(), Error);
    store = reopen();
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_P(TensorStoreTest, AStoreWithoutACommitIsNotOpenedButCreatedAgainWithOtherObjects) {
    EXPECT_THROW(reopen(), Error);
    create().reset();
    EXPECT_THROW(reopen(), Error);
    auto store = store::TensorStore::create(
        io, {&directory},
        {.objects = {{"other", 70'000, 4096}}, .caching = aio::Caching::direct, .hashers = hashers.get()});
    store.reset();
    store = create();
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    store = nullptr;
    store = reopen();
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_P(TensorStoreTest, ThroughThePageCacheItIsTheSame) {
    auto store = store::TensorStore::create(
        io, {&directory},
        {.objects = Exercise::objects(), .caching = aio::Caching::buffered, .hashers = hashers.get()});
    ASSERT_FALSE(exercise.advance(io, *store, 0));
    ASSERT_FALSE(exercise.advance(io, *store, 1));
    store = nullptr;
    store = store::TensorStore::open(io, {&directory}, {.caching = aio::Caching::buffered, .hashers = hashers.get()});
    EXPECT_EQ(exercise.difference(io, *store, 1), "");
}

TEST_P(TensorStoreTest, ObjectsAreFoundByName) {
    const auto store = create();
    EXPECT_EQ(store->find("frozen"), 2U);
    EXPECT_FALSE(store->find("froze"));
    EXPECT_EQ(store->extent_bytes({3, 0}), store->granule_bytes());
}

TEST_P(TensorStoreTest, ImpossibleObjectsAreRefusedBeforeAnythingIsTouched) {
    EXPECT_THROW(
        store::TensorStore::create(
            io, {&directory}, {.objects = {{"a", 0, 1}}, .caching = aio::Caching::direct, .hashers = hashers.get()}),
        Error);
    EXPECT_EQ(directory.content(), store::DirectoryContent::nothing);
    EXPECT_FALSE(directory.role());
}

TEST_P(TensorStoreTest, ProgressReachesTheTotal) {
    std::uint64_t last = 0;
    std::uint64_t total = 1;
    const auto progress = [&](std::uint64_t written, std::uint64_t all) {
        EXPECT_GE(written, last);
        last = written;
        total = all;
    };
    const auto store = store::TensorStore::create(
        io, {&directory}, {.objects = Exercise::objects(), .caching = aio::Caching::direct, .progress = progress});
    EXPECT_EQ(last, total);
    EXPECT_EQ(total, store->layout().device_bytes(0) + 4 * manifest_capacity(store->layout()));
}

TEST_P(TensorStoreTest, MisuseIsCaught) {
    auto store = create();
    TestTile first;
    TestTile second;
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    EXPECT_DEATH(store->read(first, {0, 0}, memory.span(), aio::Urgency::demand), "never written");
    EXPECT_DEATH(store->write(first, {0, 0}, memory.span().subspan(1), aio::Urgency::demand), "memory");
    EXPECT_DEATH(store->write(first, {0, 5}, memory.span(), aio::Urgency::demand), "tile 5 of 5");
    store->write(first, {0, 0}, memory.span(), aio::Urgency::demand);
    EXPECT_DEATH(store->write(second, {0, 0}, memory.span(), aio::Urgency::demand), "has an operation in flight");
    EXPECT_DEATH(store->write(first, {0, 1}, memory.span(), aio::Urgency::demand), "in flight");
    TestCommit commit;
    EXPECT_DEATH(store->commit(commit, {}), "writes in flight");
    EXPECT_DEATH(store.reset(), "destroyed with 0 reads, 1 writes");
    EXPECT_DEATH(store->take_back({0, 0}), "with an operation on it");
    while (!first.idle()) io.wait(std::chrono::seconds(1));
    store->commit(commit, {});
    EXPECT_DEATH(store->write(first, {0, 0}, memory.span(), aio::Urgency::demand), "while a commit is under way");
    EXPECT_DEATH(store->take_back({0, 1}), "while a commit is under way");
    EXPECT_DEATH(commit.~TestCommit(), "in flight");
    while (!commit.idle()) io.wait(std::chrono::seconds(1));
}

INSTANTIATE_TEST_SUITE_P(HashedBy, TensorStoreTest, anybody(), name_of_hashers);

}  // namespace
}  // namespace penstock::testing
