// What a store promises while others take the hashes of its tiles: at each moment that can be told apart.
#include "swap/hashing/tile_hashers.h"
#include "swap/snapshot/snapshot_copy.h"
#include "tests/swap/hashing/hashed_by.h"
#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

namespace penstock::testing {
namespace {

constexpr store::TileId first_tile{0, 0};

struct WaitedPin final : store::GenerationPin {
    void wanted(store::TileId) noexcept override {}
};

class TileHashersTest : public ::testing::Test {
   protected:
    TileHashersTest() {
        store = store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects()});
        EXPECT_FALSE(exercise.advance(io, *store, 0));
        store = open();
        store->settle();
        poll();
    }
    std::unique_ptr<store::TensorStore> open() {
        store.reset();
        return store::TensorStore::open(io, {&directory}, {.hashers = &hashers});
    }
    void poll() {
        for (int i = 0; i < 20; ++i) io.poll();
    }
    void begin_write(std::uint64_t generation) {
        exercise.fill(memory.span(), first_tile, generation);
        store->write(tile, first_tile, memory.span(), aio::Urgency::write_back);
    }
    void begin_read() { store->read(tile, first_tile, memory.span(), aio::Urgency::demand); }
    // Of the newest bytes, without hashers.
    bool holds(std::uint64_t generation) {
        store.reset();
        store = store::TensorStore::open(io, {&directory});
        aio::ScratchMemory right(8192);
        exercise.fill(right.span(), first_tile, generation);
        return !read_tile(io, *store, first_tile, memory.span()) && std::ranges::equal(memory.span(), right.span());
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    aio::Io io{device.backend(), {}};
    HeldHashers hashers{io};
    Exercise exercise{7};
    std::unique_ptr<store::TensorStore> store;
    aio::ScratchMemory memory{8192};
    TestTile tile;
    TestCommit commit;
};

TEST_F(TileHashersTest, AWriteGoesToTheDeviceOnceItsHashIsThere) {
    const std::uint64_t before = device.changes();
    begin_write(1);
    EXPECT_TRUE(store->written(first_tile));
    poll();
    EXPECT_EQ(hashers.held.size(), 1U);
    EXPECT_EQ(device.changes(), before);
    EXPECT_EQ(tile.finished, 0);
    hashers.let_go();
    EXPECT_EQ(tile.finished, 0);
    EXPECT_EQ(device.changes(), before);
    poll();
    EXPECT_EQ(tile.finished, 1);
    EXPECT_GT(device.changes(), before);
    EXPECT_FALSE(tile.error());
    ASSERT_FALSE(testing::commit(io, *store, {}));
    EXPECT_TRUE(holds(1));
}

// The manifest has its hash.
TEST_F(TileHashersTest, NoCommitBeginsBeforeAWriteWasHashed) {
    begin_write(1);
    poll();
    EXPECT_DEATH(store->commit(commit, {}), "a commit with 1 writes in flight");
    EXPECT_DEATH(store.reset(), "destroyed with 0 reads, 1 writes");
    EXPECT_DEATH(store->take_back(first_tile), "with an operation on it");
    EXPECT_DEATH(tile.~TestTile(), "before it is done");
    hashers.let_go();
    poll();
}

TEST_F(TileHashersTest, AReadIsDoneOnceItsHashIsThere) {
    const std::size_t notes = store->notes().size();  // of an opening without direct I/O
    begin_read();
    poll();
    EXPECT_EQ(hashers.held.size(), 1U);
    EXPECT_EQ(tile.finished, 0);
    EXPECT_DEATH(store.reset(), "destroyed with 1 reads, 0 writes");
    hashers.let_go();
    EXPECT_EQ(tile.finished, 0);
    poll();
    EXPECT_EQ(tile.finished, 1);
    EXPECT_FALSE(tile.error());
    EXPECT_EQ(store->notes().size(), notes);
}

TEST_F(TileHashersTest, AReadThatIsWrongIsReadAndHashedOnceMore) {
    std::size_t notes = store->notes().size();
    for (const bool again : {false, true, false}) {
        const int before = tile.finished;
        begin_read();
        poll();
        hashers.let_go(true);
        poll();
        EXPECT_EQ(tile.finished, before);
        ASSERT_EQ(hashers.held.size(), 1U);
        hashers.let_go(again);
        poll();
        EXPECT_EQ(tile.finished, before + 1);
        ASSERT_EQ(tile.error().has_value(), again);
        if (again) {
            EXPECT_EQ(tile.error()->kind, store::StoreError::Kind::damaged);
        }
        if (!again) ++notes;
        EXPECT_EQ(store->notes().size(), notes);
    }
}

TEST_F(TileHashersTest, WhatCouldNotBeReadIsNotHashed) {
    device.hook = [](const aio::Attempt&, const std::string&) { return std::optional<std::int32_t>(-EIO); };
    begin_read();
    poll();
    EXPECT_TRUE(hashers.held.empty());
    EXPECT_EQ(tile.finished, 1);
    EXPECT_EQ(tile.error()->kind, store::StoreError::Kind::io);
}

TEST_F(TileHashersTest, AWriteThatFailsAfterItsHashHoldsCommitsUp) {
    begin_write(1);
    hashers.let_go();
    device.hook = [](const aio::Attempt&, const std::string&) { return std::optional<std::int32_t>(-ENOSPC); };
    poll();
    device.hook = {};
    EXPECT_EQ(tile.error()->kind, store::StoreError::Kind::io);
    EXPECT_TRUE(testing::commit(io, *store, {}));
    begin_write(2);
    hashers.let_go();
    poll();
    EXPECT_FALSE(testing::commit(io, *store, {}));
    EXPECT_TRUE(holds(2));
}

// First for its place, then for its hash.
TEST_F(TileHashersTest, AWriteThatWaitsForAPinnedTileIsHashedAfterwards) {
    WaitedPin pin;
    store->pin(pin);
    for (const std::uint64_t generation : {1U, 2U}) {  // into the other slot, then over the pinned one
        begin_write(generation);
        EXPECT_EQ(hashers.held.size(), generation == 1 ? 1U : 0U);
        store->promote(tile, aio::Urgency::demand);
        if (generation == 2) store->unpin();
        hashers.let_go();
        poll();
        ASSERT_EQ(tile.finished, static_cast<int>(generation));
        ASSERT_FALSE(testing::commit(io, *store, {}));
    }
    EXPECT_TRUE(holds(2));
}

TEST_F(TileHashersTest, APinnedTileIsReadBesideAnotherOperationOnIt) {
    WaitedPin pin;
    store->pin(pin);
    begin_write(1);
    aio::ScratchMemory pinned(8192);
    TestTile read;
    store->read_pinned(read, first_tile, pinned.span(), aio::Urgency::scrub);
    poll();
    ASSERT_EQ(hashers.held.size(), 2U);
    hashers.let_go();
    hashers.let_go();
    poll();
    EXPECT_EQ(read.finished, 1);
    EXPECT_FALSE(read.error());
    EXPECT_EQ(tile.finished, 1);
    store->unpin();
}

// What was found comes first, and nothing is hashed for a store that cannot be written.
TEST_F(TileHashersTest, AWriteThatWaitsForTheManifestIsHashedAfterwards) {
    for (const bool lost : {false, true}) {
        store = open();
        if (lost)
            device.hook = [](const aio::Attempt&, const std::string&) { return std::optional<std::int32_t>(-EIO); };
        const int before = tile.finished;
        begin_write(lost ? 2 : 1);
        EXPECT_TRUE(hashers.held.empty());
        poll();
        EXPECT_EQ(hashers.held.size(), lost ? 0U : 1U);
        if (!lost) hashers.let_go();
        poll();
        EXPECT_EQ(tile.finished, before + 1);
        ASSERT_EQ(tile.error().has_value(), lost);
        if (!lost) {
            ASSERT_FALSE(testing::commit(io, *store, {{"generation", "1"}}));
        }
    }
    device.hook = {};
    EXPECT_TRUE(holds(1));
}

// The store may be gone before its jobs are. In processes of their own: what is abandoned is kept until the end.
TEST_F(TileHashersTest, WhatEndsAfterTheStoreWasAbandonedIsNotDelivered) {
    const auto abandon = [&] {
        TestTile read;
        aio::ScratchMemory other(16'384);
        begin_write(1);
        store->read(read, {1, 0}, other.span(), aio::Urgency::demand);
        poll();
        const std::uint64_t changes = device.changes();
        store->abandon();
        store.reset();
        hashers.let_go();
        hashers.let_go();
        poll();
        ::_exit(io.idle() && tile.finished + read.finished == 0 && device.changes() == changes ? 0 : 1);
    };
    EXPECT_EXIT(abandon(), ::testing::ExitedWithCode(0), "");
}

// A crew ends before its Io does: no thread gives back to what is gone.
TEST(TileHashers, ACrewEndsWithWhatAnAbandonedStoreLeft) {
    const TemporaryDirectory scratch;
    store::StoreDirectory directory(scratch.file("store"), "test");
    constexpr std::uint64_t bytes = 8 << 20;
    const auto abandon = [&] {
        PowerDevice device(1);
        auto io = std::make_unique<aio::Io>(device.backend(), aio::IoLimits{});
        auto crew = std::make_unique<store::HashCrew>(*io, store::Hashing{.threads = 2, .least_bytes = 1});
        auto store =
            store::TensorStore::create(*io, {&directory}, {.objects = {{"a", bytes, bytes}}, .hashers = crew.get()});
        aio::ScratchMemory memory(bytes);
        TestTile tile;
        store->write(tile, {0, 0}, memory.span(), aio::Urgency::write_back);
        store->abandon();
        store.reset();
        crew.reset();
        io.reset();
        ::_exit(tile.finished);
    };
    EXPECT_EXIT(abandon(), ::testing::ExitedWithCode(0), "");
}

TEST_F(TileHashersTest, ASnapshotIsHashedByTheStoresHashers) {
    HashersAtOnce counted(io);
    store.reset();
    store = store::TensorStore::open(io, {&directory}, {.hashers = &counted});
    store::StoreDirectory other(scratch.file("kept"), "test");
    aio::ScratchMemory lanes(1 << 20);
    store::SnapshotCopy copy(*store, create_snapshot(io, *store, other, aio::Caching::direct), lanes.span());
    while (!copy.finished()) io.wait(std::chrono::seconds(1));
    EXPECT_FALSE(copy.error());
    EXPECT_EQ(counted.jobs, 2 * store->layout().tile_count());  // read and written
}

}  // namespace
}  // namespace penstock::testing
