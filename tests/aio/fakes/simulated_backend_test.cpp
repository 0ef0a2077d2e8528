#include "tests/aio/fakes/simulated_backend.h"

#include "aio/words/io_error.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

namespace penstock::aio {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

constexpr std::uint32_t bytes = 1'000'000;

// 1 GB/s each way without latency on 2 channels: 1 MB takes 2 ms, two at once as well.
DeviceModel plain() {
    return {.read_bytes_per_second = 1e9,
            .write_bytes_per_second = 1e9,
            .read_latency = nanoseconds(0),
            .write_latency = nanoseconds(0),
            .flush_latency = microseconds(300),
            .channels = 2};
}

struct Asked : Attempt {
    explicit Asked(IoKind wanted, int wanted_fd = 3) {
        kind = wanted;
        fd = wanted_fd;
        this->Attempt::bytes = wanted == IoKind::flush ? 0 : penstock::aio::bytes;
    }
};

class SimulatedBackendTest : public ::testing::Test {
   protected:
    void build(std::vector<DeviceModel> devices, std::size_t depth = 16) {
        backend = std::make_unique<SimulatedBackend>(std::move(devices), depth);
        begin = backend->now();
    }
    // Of the next completion, since the beginning.
    nanoseconds next(const Attempt& expected) {
        Attempt* finished = backend->reap(std::chrono::hours(1));
        EXPECT_EQ(finished, &expected);
        if (finished != nullptr) {
            EXPECT_EQ(finished->next, nullptr);
        }
        return backend->now() - begin;
    }
    std::unique_ptr<SimulatedBackend> backend;
    SimulatedBackend::Time begin;
};

TEST_F(SimulatedBackendTest, ServesInOrderAtItsBandwidthOnItsChannels) {
    build({plain()});
    std::array<Asked, 4> reads{Asked(IoKind::read), Asked(IoKind::read), Asked(IoKind::read), Asked(IoKind::read)};
    backend->submit(reads[0]);
    EXPECT_EQ(backend->reap(milliseconds(1)), nullptr);
    EXPECT_EQ(backend->now() - begin, milliseconds(1));
    for (std::size_t i = 1; i < 4; ++i) backend->submit(reads[i]);
    EXPECT_EQ(backend->in_flight().size(), 4U);
    EXPECT_EQ(next(reads[0]), milliseconds(2));
    EXPECT_EQ(reads[0].result, static_cast<std::int32_t>(bytes));
    EXPECT_EQ(next(reads[1]), milliseconds(3));
    EXPECT_EQ(next(reads[2]), milliseconds(4));
    EXPECT_EQ(next(reads[3]), milliseconds(5));
}

TEST_F(SimulatedBackendTest, ReturnsWhatEndsTogetherTogetherInTheOrderOfTime) {
    build({plain(), plain()});
    backend->place(4, 1);
    Asked here(IoKind::read, 3);
    Asked there(IoKind::write, 4);
    backend->submit(there);
    backend->submit(here);
    Attempt* finished = backend->reap(std::chrono::hours(1));
    ASSERT_EQ(finished, &here);
    EXPECT_EQ(finished->next, &there);
    EXPECT_EQ(there.next, nullptr);
    EXPECT_EQ(backend->now() - begin, milliseconds(2));
}

TEST_F(SimulatedBackendTest, CatchesUpWithAllThatEndedInALongPause) {
    DeviceModel model = plain();
    model.channels = 1;
    build({model});
    Asked first(IoKind::read);
    Asked second(IoKind::read);
    Asked third(IoKind::read);
    backend->submit(first);
    backend->submit(second);
    EXPECT_EQ(next(first), milliseconds(1));
    backend->submit(third);
    EXPECT_EQ(backend->reap(microseconds(1)), nullptr);
    EXPECT_EQ(next(second), milliseconds(2));
    EXPECT_EQ(next(third), milliseconds(3));
}

TEST_F(SimulatedBackendTest, AddsLatencyAndThePenaltyOfMixedDirections) {
    DeviceModel model = plain();
    model.read_latency = microseconds(100);
    model.mixed_penalty = 2;
    build({model});
    Asked write(IoKind::write);
    Asked read(IoKind::read);
    Asked flush(IoKind::flush);
    backend->submit(write);
    backend->submit(read);   // begins beside the write: 2.1 ms and twice that
    backend->submit(flush);  // begins at 2 ms
    EXPECT_EQ(next(write), milliseconds(2));
    EXPECT_EQ(next(flush), microseconds(2300));
    EXPECT_EQ(next(read), microseconds(6300));
    EXPECT_EQ(flush.result, 0);
}

TEST_F(SimulatedBackendTest, CarriesContentWhereItIsAskedTo) {
    build({plain()});
    std::string text(bytes, 'a');
    Asked write(IoKind::write);
    write.data = reinterpret_cast<std::byte*>(text.data());
    write.offset_bytes = 5;
    EXPECT_TRUE(backend->carry(3).empty());
    backend->submit(write);
    EXPECT_TRUE(backend->carry(3).empty());  // a write is there when it has ended
    next(write);
    EXPECT_EQ(backend->carry(3).size(), bytes + 5);
    std::string copy(bytes, 'b');
    Asked read(IoKind::read);
    read.data = reinterpret_cast<std::byte*>(copy.data());
    read.offset_bytes = 3;
    backend->submit(read);
    next(read);
    EXPECT_EQ(copy.substr(0, 4), std::string("\0\0aa", 4));
    read.offset_bytes = bytes;
    backend->submit(read);
    next(read);
    EXPECT_EQ(read.result, 5);
    read.offset_bytes = 2 * bytes;
    backend->submit(read);
    next(read);
    EXPECT_EQ(read.result, 0);
}

TEST_F(SimulatedBackendTest, AHaltedDeviceEndsNothingUntilItGoesOn) {
    build({plain()});
    Asked read(IoKind::read);
    backend->submit(read);
    EXPECT_EQ(backend->reap(milliseconds(1)), nullptr);
    backend->halt(0);
    Asked later(IoKind::read);
    backend->submit(later);
    EXPECT_EQ(backend->reap(milliseconds(10)), nullptr);
    EXPECT_EQ(backend->abandon(), nullptr);
    backend->halt(0, false);
    EXPECT_EQ(next(read), milliseconds(12));
    EXPECT_EQ(next(later), milliseconds(13));
}

TEST_F(SimulatedBackendTest, AWakeEndsTheReapBeforeTimePasses) {
    build({plain()});
    Asked read(IoKind::read);
    backend->submit(read);
    backend->wake();
    EXPECT_EQ(backend->reap(std::chrono::hours(1)), nullptr);
    EXPECT_EQ(backend->now(), begin);
    EXPECT_EQ(next(read), milliseconds(2));
}

TEST_F(SimulatedBackendTest, RefusesMoreThanItsDepthAndAnEndWithSomethingInFlight) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    build({plain()}, 1);
    Asked first(IoKind::read);
    Asked second(IoKind::read);
    EXPECT_TRUE(backend->submit(first));
    EXPECT_FALSE(backend->submit(second));
    EXPECT_DEATH(backend.reset(), "ends with 1 attempts in flight");
    next(first);
    EXPECT_DEATH(SimulatedBackend({}, 1), "no device is simulated");
}

}  // namespace
}  // namespace penstock::aio
