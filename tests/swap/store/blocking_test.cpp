#include "swap/store/blocking.h"
#include "aio/words/error.h"
#include "swap/store/tiles_in_flight.h"
#include "tests/refusal.h"

#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"
#include "tests/swap/store/stuck_backend.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <list>

namespace penstock::testing {
namespace {

class BlockingTest : public ::testing::Test {
   protected:
    std::unique_ptr<store::TensorStore> create() {
        return store::TensorStore::create(
            io, {&directory}, {.objects = Exercise::objects(), .caching = aio::Caching::direct, .progress = {}});
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    bool stuck = false;
    aio::Io io{std::make_unique<StuckBackend>(device.backend(), stuck), {.deadline = std::chrono::milliseconds(20)}};
};

TEST_F(BlockingTest, WritesCommitsAndReads) {
    auto store = create();
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    aio::fill_random(memory.span(), 1);
    write_blocking(io, *store, {0, 0}, memory.span());
    commit_blocking(io, *store, {{"step", "1"}});
    EXPECT_EQ(store->generation(), 0U);
    aio::ScratchMemory read(store->extent_bytes({0, 0}));
    read_blocking(io, *store, {0, 0}, read.span());
    EXPECT_TRUE(std::equal(read.span().begin(), read.span().end(), memory.span().begin()));
}

TEST_F(BlockingTest, AFailureIsAnErrorOfStorageWithTheStoresMessage) {
    auto store = create();
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    device.hook = [](const aio::Attempt&, const std::string&) { return std::optional<std::int32_t>(-EIO); };
    try {
        write_blocking(io, *store, {0, 0}, memory.span());
        FAIL() << "the error was not seen";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_NE(std::string(error.what()).find("'block.weights', tile 0"), std::string::npos) << error.what();
    }
    device.hook = {};
    write_blocking(io, *store, {0, 0}, memory.span());
    device.hook = [](const aio::Attempt&, const std::string&) { return std::optional<std::int32_t>(-EIO); };
    EXPECT_THROW(commit_blocking(io, *store, {}), Error);
}

// In a process of its own: what a stuck device holds is kept until the process ends.
template <typename Run>
void report_and_exit(Run run) {
    try {
        run();
    } catch (const Error& error) {
        std::cerr << error.what() << '\n';
        ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
}

TEST_F(BlockingTest, AStuckDeviceIsReportedAtTheDeadlineAndTheStoreCanBeDestroyed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");  // a child by fork() alone has no pinned memory
    auto store = create();
    aio::ScratchMemory memory(store->extent_bytes({1, 2}));
    write_blocking(io, *store, {1, 2}, memory.span());
    const std::string place = "/store/data at offset " + std::to_string(store->location({1, 2}).offset_bytes);
    const auto read = [&] {
        stuck = true;
        try {
            read_blocking(io, *store, {1, 2}, memory.span());
        } catch (const Error&) {
            store.reset();
            throw;
        }
    };
    EXPECT_EXIT(report_and_exit(read), ::testing::ExitedWithCode(4),
                "read of .*" + place + " has not come back for 0\\.");
    const auto commit = [&] {
        stuck = true;
        try {
            commit_blocking(io, *store, {});
        } catch (const Error&) {
            store.reset();
            throw;
        }
    };
    EXPECT_EXIT(report_and_exit(commit), ::testing::ExitedWithCode(4), "flush of .*data has not come back for 0\\.");
}

TEST_F(BlockingTest, AnAnswerAfterTheStoreWasAbandonedIsNotDelivered) {
    auto store = create();
    aio::ScratchMemory memory(store->extent_bytes({0, 0}));
    const auto late = [&] {
        TestTile operation;
        stuck = true;
        store->write(operation, {0, 0}, memory.span(), aio::Urgency::demand);
        io.poll();
        store->abandon();
        store.reset();
        stuck = false;
        while (!io.idle()) io.wait(std::chrono::seconds(1));
        ::_exit(operation.finished == 0 ? 0 : 1);
    };
    EXPECT_EXIT(late(), ::testing::ExitedWithCode(0), "");
}

// Many at a time, all of them whole; and what becomes of the others when one fails or a device is stuck.
class TilesInFlightTest : public ::testing::Test {
   protected:
    TilesInFlightTest() {
        const auto& objects = store->layout().objects();
        for (std::uint32_t object = 0; object < objects.size(); ++object)
            for (std::uint32_t tile = 0; tile < store->layout().tile_count(object); ++tile)
                tiles.push_back({object, tile});
        for (const store::TileId tile : tiles) {
            memory.emplace_back(store->extent_bytes(tile));
            exercise.fill(memory.back().span().first(store->layout().tile_bytes(tile)), tile, 0);
        }
    }

    void write_all(store::TilesInFlight& writes) {
        auto from = memory.begin();
        for (const store::TileId tile : tiles) writes.write(tile, (from++)->span());
    }

    TemporaryDirectory scratch;
    store::StoreDirectory directory{scratch.file("store"), "test"};
    PowerDevice device{1};
    bool stuck = false;
    aio::Io io{std::make_unique<StuckBackend>(device.backend(), stuck), {.deadline = std::chrono::milliseconds(20)}};
    std::unique_ptr<store::TensorStore> store =
        store::TensorStore::create(io, {&directory}, {.objects = Exercise::objects(), .progress = {}});
    Exercise exercise{1};
    std::vector<store::TileId> tiles;
    std::list<aio::ScratchMemory> memory;  // by tile
};

TEST_F(TilesInFlightTest, AllAreWrittenAndReadWhole) {
    for (const std::size_t most : {1U, 2U, 7U, 100U}) {
        store::TilesInFlight writes(io, *store, most);
        write_all(writes);
        writes.finish();
        EXPECT_EQ(exercise.difference(io, *store, 0), "");
        std::list<aio::ScratchMemory> found;
        store::TilesInFlight reads(io, *store, most);
        for (const store::TileId tile : tiles) {
            found.emplace_back(store->extent_bytes(tile));
            reads.read(tile, found.back().span());
        }
        reads.finish();
        auto wanted = memory.begin();
        for (const aio::ScratchMemory& each : found)
            EXPECT_TRUE(std::equal(each.span().begin(), each.span().end(), (wanted++)->span().begin()));
    }
}

// Whichever it is: the error is told once, by a call that follows, and then nothing is under way any more.
TEST_F(TilesInFlightTest, OneThatFailsEndsTheWorkOnceTheOthersHaveEnded) {
    for (std::size_t failing = 0; failing < tiles.size(); ++failing) {
        std::size_t attempts = 0;
        device.hook = [&](const aio::Attempt&, const std::string&) {
            return attempts++ == failing ? std::optional<std::int32_t>(-EIO) : std::nullopt;
        };
        {
            store::TilesInFlight writes(io, *store, 3);
            const std::string said = refusal_of(ExitCode::storage, [&] {
                write_all(writes);
                writes.finish();
            });
            EXPECT_NE(said.find("Input/output error"), std::string::npos) << said;
            EXPECT_TRUE(io.idle());
        }
        device.hook = {};
        store::TilesInFlight again(io, *store, 3);
        write_all(again);
        again.finish();
        EXPECT_EQ(exercise.difference(io, *store, 0), "");
    }
}

TEST_F(TilesInFlightTest, WhoLeavesThemWaitsForThem) {
    try {
        store::TilesInFlight writes(io, *store, 100);
        write_all(writes);
        throw std::runtime_error("something else");
    } catch (const std::runtime_error&) {
        EXPECT_TRUE(io.idle());
    }
    EXPECT_EQ(exercise.difference(io, *store, 0), "");
}

TEST_F(TilesInFlightTest, AStuckDeviceIsReportedAndNothingItHoldsIsDestroyed) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto run = [&](std::size_t most) {
        auto kept = std::make_unique<std::list<aio::ScratchMemory>>(std::move(memory));
        try {
            store::TilesInFlight writes(io, *store, most);
            auto from = kept->begin();
            writes.write(tiles[0], (from++)->span());
            EXPECT_TRUE(writes.end());
            stuck = true;
            for (std::size_t index = 1; index < tiles.size(); ++index) writes.write(tiles[index], (from++)->span());
            writes.finish();
        } catch (const Error& error) {
            if (!store->abandoned()) ::_exit(1);
            store::TilesInFlight others(io, *store, 1);  // which has nothing to wait for
            if (!others.end()) ::_exit(2);
            static_cast<void>(kept.release());
            store.reset();
            std::cerr << error.what() << '\n';
            ::_exit(static_cast<int>(error.code()));
        }
        ::_exit(0);
    };
    for (const std::size_t most : {1U, 2U, 100U})
        EXPECT_EXIT(run(most), ::testing::ExitedWithCode(4), "write of .*/store/data.* has not come back for 0\\.");
}

}  // namespace
}  // namespace penstock::testing
