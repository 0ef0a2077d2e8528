// What goes to a device and when: classes, throttle, pauses. The rules themselves are in
// admission_test.cpp.
#include "aio/device_queue.h"
#include "aio/words/io_error.h"

#include "tests/aio/fakes/io_over_manual.h"

#include <array>
#include <cerrno>

namespace penstock::aio {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;

using LaneTest = IoOverManual;

// A demand read of one chunk and a write-back of many, which share a device that throttles.
class ThrottledLaneTest : public IoOverManual {
   protected:
    ThrottledLaneTest() { build(throttling()); }
    void start_both(const TransferRequest& read) {
        io_->start(reading_, read);
        io_->start(writing_, request(IoKind::write, 64 * kib, Urgency::write_back));
        io_->poll();
    }
    TransferRequest demand_read() { return request(IoKind::read, 4 * kib); }

    Counted reading_;
    Counted writing_;
};

// Two reads of 4 KiB fit in flight, and the first transfer takes both places.
class FullLaneTest : public IoOverManual {
   protected:
    FullLaneTest() { build(bounded(8 * kib, 4 * kib)); }
    void start_first(std::uint64_t bytes = 8 * kib) { io_->start(first_, request(IoKind::read, bytes)); }
    void queue(Counted& transfer, std::uint64_t offset, Urgency urgency = Urgency::demand) {
        io_->start(transfer, request(IoKind::read, 4 * kib, urgency, offset));
    }

    Counted first_;
};

TEST(TransferQueue, RemovesFromAnywhere) {
    std::array<Counted, 4> all;
    for (std::size_t removed = 0; removed < all.size(); ++removed) {
        TransferQueue queue;
        for (Counted& transfer : all) queue.push(transfer);
        queue.remove(all[removed]);
        queue.push(all[removed]);
        for (std::size_t i = 0; i < all.size(); ++i) {
            if (i == removed) continue;
            EXPECT_EQ(queue.pop(), &all[i]);
        }
        EXPECT_EQ(queue.pop(), &all[removed]);
        EXPECT_TRUE(queue.empty());
    }
}

// ---------------------------------------------------------------- the throttle

TEST_F(ThrottledLaneTest, HoldsWriteBackDownWhileADemandReadIsInFlightAndForTheCalmAfterIt) {
    start_both(demand_read());
    EXPECT_EQ(in_flight(IoKind::write), 1U);
    EXPECT_EQ(io_->statistics().throttled.load(), 1U);
    complete_all_of(IoKind::write);
    io_->poll();
    EXPECT_EQ(in_flight(IoKind::write), 1U);  // a throttled one always goes on
    complete_all_of(IoKind::read);
    io_->poll();
    EXPECT_EQ(in_flight(IoKind::write), 1U);
    backend_->advance(milliseconds(10) - nanoseconds(1));
    io_->poll();
    EXPECT_EQ(in_flight(IoKind::write), 1U);
    backend_->advance(nanoseconds(1));
    io_->poll();
    EXPECT_EQ(in_flight(IoKind::write), 4U);
    EXPECT_EQ(io_->statistics().throttled.load(), 1U);
    wait_to_the_end();
}

TEST_F(ThrottledLaneTest, AWaitIssuesTheRestWhenTheCalmEndsThoughNothingComesBack) {
    start_both(demand_read());
    complete_all_of(IoKind::read);
    io_->poll();
    const auto before = backend_->now();
    EXPECT_EQ(io_->wait(milliseconds(500)), 0U);
    EXPECT_EQ(backend_->now() - before, milliseconds(500));
    EXPECT_EQ(in_flight(IoKind::write), 4U);
    // They were handed over when the calm ended, not at the end of the wait.
    complete_all_of(IoKind::read);
    Attempt* first = backend_->in_flight.front();
    backend_->complete(first, 4 * kib);
    ASSERT_TRUE(io_->oldest().has_value());
    EXPECT_EQ(static_cast<const Chunk*>(backend_->in_flight.front())->submitted - before, milliseconds(10));
    wait_to_the_end();
}

TEST_F(ThrottledLaneTest, CountsEachTimeThatWriteBackBeginsToBeHeldBack) {
    io_->start(writing_, request(IoKind::write, 128 * kib, Urgency::write_back));
    for (std::uint64_t round = 1; round <= 3; ++round) {
        io_->start(reading_, demand_read());
        for (int i = 0; i < 3; ++i) {
            io_->poll();
            complete_all_of(IoKind::write);
        }
        complete_all_of(IoKind::read);
        io_->poll();
        EXPECT_EQ(io_->statistics().throttled.load(), round);
        backend_->advance(milliseconds(20));
        io_->poll();
        EXPECT_EQ(in_flight(IoKind::write), 4U);
    }
    wait_to_the_end();
}

TEST_F(ThrottledLaneTest, PrefetchReadsDoNotThrottleWrites) {
    start_both(request(IoKind::read, 64 * kib, Urgency::prefetch));
    EXPECT_EQ(in_flight(IoKind::write), 4U);
    EXPECT_EQ(io_->statistics().throttled.load(), 0U);
    wait_to_the_end();
}

// ---------------------------------------------------------------- classes

TEST_F(ThrottledLaneTest, AReadWithoutAClassIsDemandAndAWriteIsWriteBack) {
    TransferRequest plain = demand_read();
    plain.urgency.reset();
    io_->start(reading_, plain);
    plain.kind = IoKind::write;
    io_->start(writing_, plain);
    wait_to_the_end();
    EXPECT_EQ(io_->statistics().lane(IoKind::read, Urgency::demand).transfers.load(), 1U);
    EXPECT_EQ(io_->statistics().lane(IoKind::write, Urgency::write_back).transfers.load(), 1U);
}

TEST_F(LaneTest, AFlushGoesBeforeWhatIsQueuedAndNeedsNoBytes) {
    build(bounded(16 * kib, 4 * kib), 5);
    Counted reading;
    Counted flushing;
    io_->start(reading, request(IoKind::read, 64 * kib));
    io_->start(flushing, flush());
    io_->poll();
    ASSERT_EQ(backend_->in_flight.size(), 5U);
    EXPECT_EQ(backend_->in_flight[0]->kind, IoKind::flush);
    wait_to_the_end();
}

TEST_F(LaneTest, KeepsPlacesForDemandReadsFromManySmallWrites) {
    build(bounded(256 * kib, 4 * kib), 16);
    Counted writing;
    Counted reading;
    io_->start(writing, request(IoKind::write, 128 * kib, Urgency::demand));
    io_->poll();
    EXPECT_EQ(backend_->in_flight.size(), 12U);
    io_->start(reading, request(IoKind::read, 128 * kib));
    io_->poll();
    EXPECT_EQ(in_flight(IoKind::read), 4U);
    wait_to_the_end();
}

TEST_F(LaneTest, KeepsAQuarterOfFewPlacesAtMost) {
    build(bounded(256 * kib, 4 * kib), 8);
    Counted writing;
    io_->start(writing, request(IoKind::write, 128 * kib, Urgency::demand));
    io_->poll();
    EXPECT_EQ(backend_->in_flight.size(), 6U);
    wait_to_the_end();
}

TEST_F(FullLaneTest, PromotesWhatIsNotIssuedYetToTheEndOfTheMoreUrgentClass) {
    Counted promoted;
    Counted before;
    Counted after;
    start_first();
    queue(promoted, 100 * kib, Urgency::prefetch);
    queue(before, 200 * kib);
    io_->poll();
    io_->promote(promoted, Urgency::demand);
    queue(after, 300 * kib);
    backend_->complete_all();
    io_->poll();
    EXPECT_EQ(offsets(), (std::vector<std::uint64_t>{200 * kib, 100 * kib}));
    wait_to_the_end();
    EXPECT_EQ(io_->statistics().lane(IoKind::read, Urgency::demand).transfers.load(), 4U);
    EXPECT_EQ(io_->statistics().lane(IoKind::read, Urgency::prefetch).transfers.load(), 0U);
}

TEST_F(FullLaneTest, PromotesTheRestOfATransferThatIsPartlyIssued) {
    io_->start(first_, request(IoKind::read, 16 * kib, Urgency::prefetch));
    io_->poll();
    EXPECT_EQ(backend_->in_flight.size(), 1U);  // prefetch_bytes
    io_->promote(first_, Urgency::demand);
    io_->promote(first_, Urgency::prefetch);  // less urgent: nothing happens
    io_->poll();
    EXPECT_EQ(backend_->in_flight.size(), 2U);
    wait_to_the_end();
    EXPECT_FALSE(first_.error().has_value());
    EXPECT_EQ(io_->statistics().lane(IoKind::read, Urgency::prefetch).bytes.load(), 4 * kib);
    EXPECT_EQ(io_->statistics().lane(IoKind::read, Urgency::demand).bytes.load(), 12 * kib);
    io_->promote(first_, Urgency::demand);  // idle
    Counted flushing;
    io_->start(flushing, flush());
    io_->promote(flushing, Urgency::demand);
    wait_to_the_end();
}

TEST_F(FullLaneTest, PromotionToAClassThatTheDirectionDoesNotHaveIsRefused) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    io_->start(first_, request(IoKind::write, 4 * kib, Urgency::scrub));
    EXPECT_DEATH(io_->promote(first_, Urgency::prefetch), "has no class");
    wait_to_the_end();
}

TEST_F(FullLaneTest, WhatBecamePossibleGoesToTheDeviceBeforeDoneIsCalled) {
    Counted next;
    std::size_t in_flight_in_done = 0;
    start_first();
    queue(next, 0);
    first_.then = [&] { in_flight_in_done = backend_->in_flight.size(); };
    io_->poll();
    backend_->complete_all();
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(in_flight_in_done, 1U);
    wait_to_the_end();
}

// ---------------------------------------------------------------- pauses

TEST_F(LaneTest, PausesBeforeItRepeatsWhatMustBeTriedAgainTwiceAsLongEachTime) {
    build(bounded(16 * kib, 4 * kib, 10));
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    std::vector<nanoseconds> pauses;
    for (int i = 0; i < 9; ++i) {
        ASSERT_EQ(backend_->in_flight.size(), 1U);
        backend_->complete_first(-EAGAIN);
        io_->poll();
        EXPECT_TRUE(backend_->in_flight.empty());
        EXPECT_FALSE(io_->oldest().has_value());  // a pause is no answer that is missing
        const auto rest = backend_->now();
        EXPECT_EQ(io_->wait(milliseconds(30)), 0U);
        EXPECT_EQ(backend_->now() - rest, milliseconds(30));
        ASSERT_EQ(backend_->in_flight.size(), 1U);
        pauses.push_back(static_cast<const Chunk*>(backend_->in_flight.front())->submitted - rest);
    }
    EXPECT_EQ(pauses, (std::vector<nanoseconds>{microseconds(100), microseconds(200), microseconds(400),
                                                microseconds(800), microseconds(1600), microseconds(3200),
                                                microseconds(6400), milliseconds(10), milliseconds(10)}));
    backend_->complete_first(-EAGAIN);
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(transfer.error()->errno_value, EAGAIN);
    EXPECT_EQ(transfer.error()->tries, 10);
    EXPECT_EQ(io_->statistics().total_retried(), 9U);
    EXPECT_EQ(io_->statistics().total_attempts(), 10U);
}

TEST_F(FullLaneTest, RepeatsWhatWasInterruptedAtOnce) {
    start_first(4 * kib);
    io_->poll();
    backend_->complete_first(-EINTR);
    io_->poll();
    EXPECT_EQ(backend_->in_flight.size(), 1U);
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_FALSE(first_.error().has_value());
}

TEST_F(FullLaneTest, WhatPausesKeepsItsBytesAndItsPlace) {
    Counted second;
    start_first();
    queue(second, 100 * kib);
    io_->poll();
    backend_->complete_first(-EAGAIN);
    io_->poll();
    EXPECT_EQ(offsets(), (std::vector<std::uint64_t>{4 * kib}));
    wait_to_the_end();
    EXPECT_FALSE(first_.error().has_value());
}

}  // namespace
}  // namespace penstock::aio
