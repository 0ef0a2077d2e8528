#include "tests/aio/fakes/io_over_manual.h"

#include "aio/words/io_error.h"
#include "tests/aio/fakes/simulated_backend.h"

#include <cerrno>
#include <thread>

namespace penstock::aio {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a test loses on purpose, so that a leak checker sees that it is still known.
std::vector<Backend*>& left_to_the_kernel() {
    static auto* all = new std::vector<Backend*>;  // not destroyed at the exit, where the checker looks
    return *all;
}

IoLimits with_deadline(std::chrono::nanoseconds deadline) {
    IoLimits limits = bounded(16 * kib, 4 * kib);
    limits.deadline = deadline;
    return limits;
}

using IoDeadline = IoOverManual;

TEST(OldestTransfer, SaysWhatHasNotComeBack) {
    OldestTransfer oldest{.path = "/nvme/data", .kind = IoKind::read, .offset_bytes = 4096, .age = seconds(120)};
    EXPECT_EQ(oldest.message(), "read of /nvme/data at offset 4096 has not come back for 120 s");
    oldest.kind = IoKind::flush;
    oldest.age = milliseconds(1500);
    EXPECT_EQ(oldest.message(), "flush of /nvme/data has not come back for 1.5 s");
}

TEST_F(IoDeadline, NamesWhatIsStuckOnlyAfterTheDeadline) {
    build(with_deadline(seconds(2)));
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib, Urgency::demand, 8 * kib));
    backend_->advance(seconds(100));  // in the queue: does not count
    io_->poll();
    backend_->advance(seconds(2));
    EXPECT_FALSE(io_->advance(seconds(0)).has_value());
    backend_->advance(std::chrono::nanoseconds(1));
    ASSERT_TRUE(io_->advance(seconds(0)).has_value());
    EXPECT_EQ(io_->advance(seconds(0))->message(), "read of " + path_ + " at offset 8192 has not come back for 2 s");
    backend_->complete_all();
    io_->poll();
    EXPECT_FALSE(io_->advance(seconds(0)).has_value());
}

// What is in the page cache takes as long as it takes.
TEST_F(IoDeadline, AFlushIsNotLateWhileItsDeviceWrites) {
    build(with_deadline(seconds(4)));
    backend_->written = 100;
    Counted flush;
    io_->start(flush, {.kind = IoKind::flush, .file = &file_, .data = nullptr, .offset_bytes = 0, .bytes = 0});
    io_->poll();
    int seconds_late = 0;
    for (int second = 0; second < 100; ++second) {
        backend_->advance(seconds(1));
        *backend_->written += 8;
        if (io_->advance(seconds(0))) ++seconds_late;
    }
    EXPECT_EQ(seconds_late, 0);
    // It goes still: late after the deadline, from when it was last seen at work.
    backend_->advance(seconds(2));
    EXPECT_FALSE(io_->advance(seconds(0)).has_value());
    backend_->advance(seconds(4));
    EXPECT_FALSE(io_->advance(seconds(0)).has_value());
    backend_->advance(seconds(1));
    const auto stuck = io_->advance(seconds(0));
    EXPECT_EQ(stuck ? stuck->message() : "", "flush of " + path_ + " has not come back for 107 s");
    backend_->complete_all();
    io_->poll();
}

TEST_F(IoDeadline, AFlushOfADeviceThatDoesNothingIsLate) {
    build(with_deadline(seconds(4)));
    backend_->written = 100;
    Counted flush;
    io_->start(flush, {.kind = IoKind::flush, .file = &file_, .data = nullptr, .offset_bytes = 0, .bytes = 0});
    const auto before = backend_->now();
    const auto stuck = io_->finish(flush);
    ASSERT_TRUE(stuck.has_value());
    EXPECT_LE(backend_->now() - before, seconds(8) + milliseconds(1)) << "the first look compares with nothing";
    backend_->complete_all();
    io_->poll();
}

// A read waits for nobody's writes.
TEST_F(IoDeadline, AReadIsLateThoughItsDeviceWrites) {
    build(with_deadline(seconds(4)));
    backend_->written = 100;
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    for (int second = 0; second < 4; ++second) {
        backend_->advance(seconds(1));
        *backend_->written += 8;
        EXPECT_FALSE(io_->advance(seconds(0)).has_value());
    }
    backend_->advance(seconds(1));
    EXPECT_TRUE(io_->advance(seconds(0)).has_value());
    backend_->complete_all();
    io_->poll();
}

TEST_F(IoDeadline, AdvanceBlocksUntilSomethingCanBeStuckAndNoLonger) {
    build(with_deadline(seconds(2)));
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    const auto before = backend_->now();
    EXPECT_FALSE(io_->advance(seconds(1)).has_value());
    EXPECT_EQ(backend_->now() - before, seconds(1));
    EXPECT_TRUE(io_->advance(seconds(100)).has_value());
    EXPECT_LE(backend_->now() - before, seconds(2) + std::chrono::microseconds(1));
    EXPECT_TRUE(io_->advance(seconds(100)).has_value());
    backend_->complete_all();
    EXPECT_FALSE(io_->advance(seconds(100)).has_value());
    EXPECT_EQ(transfer.dones, 1);
}

// Each of a row of short ones has the whole deadline, however long the row takes.
TEST_F(IoDeadline, AdvanceCountsFromWhenTheOldestWasHandedOver) {
    build(with_deadline(seconds(2)));
    Counted transfer;
    for (int round = 0; round < 4; ++round) {
        io_->start(transfer, request(IoKind::read, 4 * kib));
        EXPECT_FALSE(io_->advance(std::chrono::milliseconds(1500)).has_value());
        backend_->complete_all();
        EXPECT_FALSE(io_->advance(std::chrono::nanoseconds(0)).has_value());
        EXPECT_EQ(transfer.dones, round + 1);
    }
}

TEST_F(IoDeadline, FinishReturnsWhenTheTransferHasEndedOrSomethingIsStuck) {
    build(with_deadline(seconds(2)));
    backend_->automatic = true;
    Counted quick;
    io_->start(quick, request(IoKind::read, 64 * kib));
    EXPECT_FALSE(io_->finish(quick).has_value());
    EXPECT_EQ(quick.dones, 1);
    EXPECT_FALSE(io_->finish_all().has_value());

    backend_->automatic = false;
    Counted slow;
    io_->start(slow, request(IoKind::write, 4 * kib, Urgency::demand, 12 * kib));
    const auto before = backend_->now();
    const auto stuck = io_->finish(slow);
    ASSERT_TRUE(stuck.has_value());
    EXPECT_EQ(stuck->offset_bytes, 12 * kib);
    EXPECT_GT(stuck->age, seconds(2));
    EXPECT_LE(backend_->now() - before, seconds(2) + std::chrono::microseconds(1));
    EXPECT_TRUE(io_->finish_all().has_value());
    EXPECT_FALSE(slow.idle());
    backend_->complete_all();
    EXPECT_FALSE(io_->finish(slow).has_value());
    EXPECT_FALSE(slow.error().has_value());
}

TEST_F(IoDeadline, TheEndWaitsForTheDeadlineAndThenOnlyWhatIsStuckIsLost) {
    build(with_deadline(seconds(2)));
    left_to_the_kernel().push_back(backend_);
    Counted stuck;
    Counted partly;
    Counted queued;
    Counted done;
    io_->start(done, request(IoKind::read, 4 * kib));
    io_->poll();
    io_->start(stuck, request(IoKind::write, 8 * kib));
    io_->start(partly, request(IoKind::read, 64 * kib, Urgency::demand, 64 * kib));
    io_->start(queued, request(IoKind::read, 4 * kib));
    io_->poll();
    ASSERT_EQ(backend_->in_flight.size(), 6U);  // done, 3 of partly, 2 of stuck
    backend_->advance(seconds(1));
    backend_->complete(backend_->in_flight[5], 4 * kib);  // the second half of stuck
    while (backend_->in_flight.size() > 1) backend_->complete_first(4 * kib);
    const auto before = backend_->now();
    io_.reset();
    // Handed over a second before: one more second and a little.
    EXPECT_EQ(backend_->now() - before, seconds(1) + std::chrono::nanoseconds(1));
    for (const Counted* transfer : {&partly, &queued, &done}) {
        EXPECT_TRUE(transfer->idle());
        ASSERT_TRUE(transfer->error().has_value());
        EXPECT_EQ(transfer->error()->errno_value, ECANCELED);
    }
    EXPECT_TRUE(stuck.orphaned());
    EXPECT_FALSE(stuck.idle());
    ASSERT_TRUE(stuck.error().has_value());
    EXPECT_EQ(stuck.error()->errno_value, ETIMEDOUT);
    EXPECT_EQ(stuck.error()->offset_bytes, 0U);
    EXPECT_EQ(stuck.error()->bytes, 4 * kib);
    EXPECT_EQ(stuck.error()->path, path_);
    for (const Counted* transfer : {&stuck, &partly, &queued, &done}) EXPECT_EQ(transfer->dones, 0);
}

// An owner that was away for longer than the deadline finds what came back meanwhile.
TEST_F(IoDeadline, TheEndLooksBeforeItGivesUp) {
    build(with_deadline(seconds(2)));
    Counted transfer;
    io_->start(transfer, request(IoKind::write, 4 * kib));
    io_->poll();
    backend_->complete_all();
    backend_->advance(seconds(100));
    io_.reset();
    EXPECT_TRUE(transfer.idle());
}

TEST_F(IoDeadline, TheEndGivesEachAttemptItsWholeDeadline) {
    build(with_deadline(seconds(2)));
    left_to_the_kernel().push_back(backend_);
    Counted first;
    Counted second;
    io_->start(first, request(IoKind::write, 4 * kib));
    io_->poll();
    backend_->advance(seconds(1));
    io_->start(second, request(IoKind::write, 4 * kib));
    io_->poll();
    const auto before = backend_->now();
    io_.reset();
    EXPECT_EQ(backend_->now() - before, seconds(2) + std::chrono::nanoseconds(1));
    EXPECT_TRUE(first.orphaned());
    EXPECT_TRUE(second.orphaned());
}

TEST_F(IoDeadline, WhatTheBackendNeverBeganIsCancelledAndNothingIsLost) {
    build(with_deadline(seconds(2)));
    backend_->begun = false;
    Counted transfer;
    io_->start(transfer, request(IoKind::write, 8 * kib));
    io_->poll();
    io_.reset();  // destroys the backend, which would leak otherwise
    EXPECT_TRUE(transfer.idle());
    ASSERT_TRUE(transfer.error().has_value());
    EXPECT_EQ(transfer.error()->errno_value, ECANCELED);
}

TEST_F(IoDeadline, TheEndResumesAndRepeatsNothing) {
    build(with_deadline(seconds(2)));
    Counted shortened;
    Counted again;
    Counted resting;
    io_->start(resting, request(IoKind::read, 4 * kib));
    io_->poll();
    backend_->complete_first(-EAGAIN);
    io_->poll();
    EXPECT_TRUE(backend_->in_flight.empty());
    io_->start(shortened, request(IoKind::read, 4 * kib));
    io_->start(again, request(IoKind::write, 4 * kib));
    io_->poll();
    backend_->complete_first(512);
    backend_->complete_first(-EAGAIN);
    io_.reset();  // the backend's end checks that nothing was handed to it again
    for (const Counted* transfer : {&shortened, &again, &resting}) {
        EXPECT_TRUE(transfer->idle());
        ASSERT_TRUE(transfer->error().has_value());
        EXPECT_EQ(transfer->error()->errno_value, ECANCELED);
    }
}

TEST_F(IoDeadline, ATransferThatIsPartlyBackWhenTheIoEndsIsCancelled) {
    build(with_deadline(seconds(2)));
    Counted partly;
    Counted urgent;
    io_->start(partly, request(IoKind::read, 64 * kib, Urgency::prefetch));
    io_->poll();
    io_->start(urgent, request(IoKind::read, 64 * kib, Urgency::demand));
    backend_->complete_all();
    io_->poll();  // the demand read has taken all the room: nothing of the prefetch is in flight any more
    ASSERT_EQ(backend_->in_flight.size(), 4U);
    backend_->automatic = true;
    io_.reset();
    EXPECT_TRUE(partly.idle());
    EXPECT_TRUE(urgent.idle());
}

// Through a simulated device that halts: the process gets its answer after the deadline, in no time of its own.
TEST(IoDeadlineOverSimulated, AHaltedDeviceCostsItsTransfersOnly) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("data");
    const File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    const ScratchMemory memory(8 << 20);
    auto owned = std::make_unique<SimulatedBackend>(std::vector{DeviceModel{}}, 64);
    SimulatedBackend& simulated = *owned;
    left_to_the_kernel().push_back(&simulated);
    Counted transfer;
    {
        Io io(std::move(owned), {.deadline = seconds(30)});
        io.start(transfer, {.kind = IoKind::write, .file = &file, .data = memory.data(), .bytes = 8 << 20});
        io.poll();
        simulated.halt(0);
        const auto stuck = io.finish(transfer);
        ASSERT_TRUE(stuck.has_value());
        EXPECT_EQ(stuck->path, path);
    }
    EXPECT_TRUE(transfer.orphaned());
    EXPECT_EQ(simulated.in_flight().size(), 8U);
}

}  // namespace
}  // namespace penstock::aio
