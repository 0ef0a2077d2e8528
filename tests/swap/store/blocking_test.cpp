#include "swap/store/blocking.h"
#include "aio/words/error.h"

#include "tests/swap/power/power_device.h"
#include "tests/swap/store/exercise.h"
#include "tests/swap/store/stuck_backend.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <iostream>

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

}  // namespace
}  // namespace penstock::testing
