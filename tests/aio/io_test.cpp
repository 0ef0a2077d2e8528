#include "aio/io.h"
#include "aio/words/io_error.h"

#include "aio/file.h"
#include "tests/aio/fakes/io_over_manual.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

namespace penstock::aio {
namespace {

TEST_F(IoOverManual, CutsATransferIntoChunksThatAreInFlightTogether) {
    build(bounded(64 * kib, 16 * kib));
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 40 * kib, Urgency::demand, 4096));
    EXPECT_TRUE(backend_->in_flight.empty());
    io_->poll();
    ASSERT_EQ(backend_->in_flight.size(), 3U);
    EXPECT_EQ(offsets(), (std::vector<std::uint64_t>{4096, 4096 + 16 * kib, 4096 + 32 * kib}));
    EXPECT_EQ(backend_->in_flight[1]->data, memory_.data() + 16 * kib);
    EXPECT_EQ(backend_->in_flight[2]->bytes, 8 * kib);
    EXPECT_FALSE(transfer.idle());
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(transfer.dones, 1);
    EXPECT_FALSE(transfer.error().has_value());
    EXPECT_TRUE(io_->idle());
    EXPECT_EQ(io_->statistics().total_read_bytes(), 40 * kib);
}

TEST_F(IoOverManual, BoundsTheBytesInFlightPerDirection) {
    build(bounded(32 * kib, 16 * kib));
    Counted reading;
    Counted writing;
    Counted flushing;
    io_->start(reading, request(IoKind::read, 128 * kib));
    io_->start(writing, request(IoKind::write, 128 * kib));
    io_->start(flushing, flush());
    int rounds = 0;
    while (!io_->idle()) {
        io_->poll();
        std::array<std::uint64_t, 3> bytes{};
        for (const Attempt* attempt : backend_->in_flight)
            bytes[static_cast<std::size_t>(attempt->kind)] += attempt->bytes;
        EXPECT_LE(bytes[0], 32 * kib);
        EXPECT_LE(bytes[1], 32 * kib);
        if (rounds == 0) {
            EXPECT_EQ(backend_->in_flight.size(), 5U);
        }
        if (!backend_->in_flight.empty())
            backend_->complete_first(static_cast<std::int32_t>(backend_->in_flight.front()->bytes));
        ASSERT_LT(++rounds, 100);
    }
    EXPECT_EQ(reading.dones + writing.dones + flushing.dones, 3);
}

TEST_F(IoOverManual, ServesAnEarlierClassFirstAndLetsNoSmallerOnePassIt) {
    build(bounded(32 * kib, 16 * kib));
    std::array<Counted, 5> all;
    io_->start(all[0], request(IoKind::read, 12 * kib, Urgency::scrub, 0));
    io_->poll();
    io_->start(all[1], request(IoKind::read, 4 * kib, Urgency::scrub, 100 * kib));
    io_->start(all[2], request(IoKind::read, 4 * kib, Urgency::prefetch, 200 * kib));
    io_->start(all[3], request(IoKind::read, 32 * kib, Urgency::demand, 300 * kib));
    io_->start(all[4], request(IoKind::read, 4 * kib, Urgency::demand, 400 * kib));
    io_->poll();
    // 4 KiB more would fit beside these 28, but a demand read waits.
    EXPECT_EQ(offsets(), (std::vector<std::uint64_t>{0, 300 * kib}));
    std::vector<std::uint64_t> order;
    while (!io_->idle()) {
        for (const std::uint64_t offset : offsets()) order.push_back(offset);
        backend_->complete_all();
        io_->poll();
    }
    EXPECT_EQ(order, (std::vector<std::uint64_t>{0, 300 * kib, 316 * kib, 400 * kib, 200 * kib, 100 * kib}));
}

TEST_F(IoOverManual, KeepsWorkingWhenThereAreMoreTransfersThanPlaces) {
    build({.chunk_bytes = 4 * kib}, 2);
    backend_->automatic = true;
    std::vector<std::unique_ptr<Counted>> all;
    for (int i = 0; i < 50; ++i) {
        all.push_back(std::make_unique<Counted>());
        io_->start(*all.back(), i % 3 == 0 ? flush() : request(i % 3 == 1 ? IoKind::read : IoKind::write, 12 * kib));
    }
    for (int i = 0; !io_->idle() && i < 1000; ++i) io_->poll();
    for (const auto& transfer : all) EXPECT_EQ(transfer->dones, 1);
    EXPECT_EQ(io_->statistics().flushes.load(), 17U);
    EXPECT_EQ(io_->statistics().total_write_bytes(), 16 * 12 * kib);
}

TEST_F(IoOverManual, ResumesAShortChunkInItsPlace) {
    build({.chunk_bytes = 16 * kib});
    Counted transfer;
    io_->start(transfer, request(IoKind::write, 16 * kib));
    io_->poll();
    backend_->complete_first(8 * kib);
    EXPECT_EQ(io_->poll(), 0U);
    ASSERT_EQ(backend_->in_flight.size(), 1U);
    EXPECT_EQ(backend_->in_flight[0]->offset_bytes, 8 * kib);
    EXPECT_EQ(backend_->in_flight[0]->data, memory_.data() + 8 * kib);
    EXPECT_EQ(backend_->in_flight[0]->bytes, 8 * kib);
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(io_->statistics().total_resumed(), 1U);
    EXPECT_EQ(io_->statistics().total_write_bytes(), 16 * kib);
}

TEST_F(IoOverManual, KeepsTheFirstErrorAndDrainsTheRestBeforeItIsDone) {
    build(bounded(16 * kib, 4 * kib, 3));
    Counted transfer;
    Counted next;
    io_->start(transfer, request(IoKind::write, 64 * kib));
    io_->start(next, request(IoKind::write, 4 * kib, Urgency::demand, 128 * kib));
    io_->poll();
    ASSERT_EQ(backend_->in_flight.size(), 4U);
    backend_->complete(backend_->in_flight[1], -ENOSPC);
    EXPECT_EQ(io_->poll(), 0U);
    EXPECT_EQ(transfer.dones, 0);
    // The failed transfer's other chunks are not issued and not repeated; the next transfer goes on.
    ASSERT_EQ(backend_->in_flight.size(), 4U);
    EXPECT_EQ(backend_->in_flight[3]->offset_bytes, 128 * kib);
    backend_->complete_first(-EIO);
    backend_->complete_first(100);
    EXPECT_EQ(io_->poll(), 0U);
    backend_->complete_first(-EAGAIN);
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(transfer.dones, 1);
    EXPECT_EQ(next.dones, 0);
    ASSERT_TRUE(transfer.error().has_value());
    EXPECT_EQ(transfer.error()->errno_value, ENOSPC);
    EXPECT_EQ(transfer.error()->offset_bytes, 4 * kib);
    EXPECT_EQ(transfer.error()->bytes, 4 * kib);
    EXPECT_EQ(transfer.error()->path, path_);
    EXPECT_EQ(transfer.error()->tries, 1);
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_FALSE(next.error().has_value());
}

TEST_F(IoOverManual, ReportsAFailedFlush) {
    build({});
    Counted transfer;
    io_->start(transfer, flush());
    io_->poll();
    backend_->complete_first(-EIO);
    EXPECT_EQ(io_->poll(), 1U);
    ASSERT_TRUE(transfer.error().has_value());
    EXPECT_EQ(transfer.error()->kind, IoKind::flush);
    EXPECT_EQ(transfer.error()->errno_value, EIO);
    EXPECT_EQ(io_->statistics().flushes.load(), 0U);
}

TEST_F(IoOverManual, ClearsTheErrorOfATransferThatIsStartedAgain) {
    build({});
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    backend_->complete_first(-EIO);
    io_->poll();
    ASSERT_TRUE(transfer.error().has_value());
    io_->start(transfer, request(IoKind::read, 4 * kib));
    EXPECT_FALSE(transfer.error().has_value());
    io_->poll();
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_FALSE(transfer.error().has_value());
}

TEST_F(IoOverManual, RestartsFromDoneWithoutRecursionAndHandsTheNewWorkOnAtOnce) {
    build({.chunk_bytes = 4 * kib});
    Counted transfer;
    int depth = 0;
    int deepest = 0;
    transfer.then = [&] {
        deepest = std::max(deepest, ++depth);
        if (transfer.dones < 1000) io_->start(transfer, request(IoKind::read, 4 * kib));
        --depth;
    };
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    while (!io_->idle()) {
        ASSERT_EQ(backend_->in_flight.size(), 1U);
        backend_->complete_all();
        EXPECT_EQ(io_->poll(), 1U);
    }
    EXPECT_EQ(transfer.dones, 1000);
    EXPECT_EQ(deepest, 1);
}

TEST_F(IoOverManual, LetsDoneDestroyItsTransfer) {
    build({});
    auto transfer = std::make_unique<Counted>();
    transfer->then = [&] { transfer.reset(); };
    io_->start(*transfer, request(IoKind::read, 4 * kib));
    io_->poll();
    backend_->complete_all();
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(transfer, nullptr);
}

// What a caller decides itself reaches whoever waits for it in the same way, and never from within the call.
TEST_F(IoOverManual, DeliversWhatWasPostedWithTheNextPollWithoutTouchingTheDevice) {
    build({});
    Counted posted;
    io_->post(posted);
    EXPECT_EQ(posted.dones, 0);
    EXPECT_FALSE(posted.idle());
    EXPECT_FALSE(io_->idle());
    EXPECT_TRUE(io_->due());
    posted.then = [&] {
        if (posted.dones == 1) io_->post(posted);
    };
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(io_->wait(std::chrono::hours(1)), 1U);
    EXPECT_EQ(posted.dones, 2);
    EXPECT_FALSE(posted.error().has_value());
    EXPECT_TRUE(io_->idle());
    EXPECT_TRUE(backend_->in_flight.empty());
}

TEST_F(IoOverManual, CancelsWhatWasPostedWhenDestroyed) {
    build({});
    Counted posted;
    io_->post(posted);
    io_.reset();
    EXPECT_EQ(posted.dones, 0);
    ASSERT_TRUE(posted.error().has_value());
    EXPECT_EQ(posted.error()->errno_value, ECANCELED);
}

TEST_F(IoOverManual, NamesTheOldestTransfer) {
    build(bounded(8 * kib, 4 * kib));
    EXPECT_FALSE(io_->oldest().has_value());
    Counted first;
    Counted second;
    io_->start(first, request(IoKind::write, 8 * kib, Urgency::scrub, 64 * kib));
    io_->poll();
    backend_->advance(std::chrono::milliseconds(3));
    io_->start(second, request(IoKind::read, 4 * kib));
    io_->poll();
    const auto oldest = io_->oldest();
    ASSERT_TRUE(oldest.has_value());
    EXPECT_EQ(oldest->path, path_);
    EXPECT_EQ(oldest->kind, IoKind::write);
    EXPECT_EQ(oldest->offset_bytes, 64 * kib);
    EXPECT_EQ(oldest->age, std::chrono::milliseconds(3));
    backend_->automatic = true;
    while (!io_->idle()) io_->poll();
    EXPECT_FALSE(io_->oldest().has_value());
}

// A long queue before a healthy device is not a device that does not answer.
TEST_F(IoOverManual, DoesNotCountTheTimeInTheQueueAsAge) {
    build(bounded(8 * kib, 4 * kib));
    Counted first;
    Counted queued;
    io_->start(first, request(IoKind::read, 8 * kib));
    io_->start(queued, request(IoKind::read, 4 * kib, Urgency::demand, 64 * kib));
    io_->poll();
    backend_->advance(std::chrono::milliseconds(20));
    backend_->complete_all();
    io_->poll();  // delivers the first, hands over the second
    const auto oldest = io_->oldest();
    ASSERT_TRUE(oldest.has_value());
    EXPECT_EQ(oldest->offset_bytes, 64 * kib);
    EXPECT_EQ(oldest->age, std::chrono::nanoseconds(0));
    backend_->automatic = true;
    while (!io_->idle()) io_->poll();
}

TEST_F(IoOverManual, WaitsForWhatIsInFlightWhenDestroyedAndCancelsTheRest) {
    build(bounded(8 * kib, 4 * kib));
    Counted partly;
    Counted queued;
    Counted wholly;
    io_->start(partly, request(IoKind::write, 64 * kib));
    io_->start(queued, request(IoKind::write, 4 * kib));
    io_->start(wholly, request(IoKind::read, 4 * kib));
    io_->poll();
    EXPECT_EQ(backend_->in_flight.size(), 3U);
    backend_->automatic = true;
    io_.reset();
    for (const Counted* transfer : {&partly, &queued, &wholly}) {
        EXPECT_TRUE(transfer->idle());
        EXPECT_EQ(transfer->dones, 0);
        ASSERT_TRUE(transfer->error().has_value());
        EXPECT_EQ(transfer->error()->errno_value, ECANCELED);
    }
}

TEST_F(IoOverManual, ChecksWhatItsCallersPromise) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    if (!file_.direct()) GTEST_SKIP() << file_.fallback();
    build({.chunk_bytes = 4 * kib});
    Counted transfer;
    TransferRequest odd = request(IoKind::read, 4 * kib);
    odd.offset_bytes = 3;
    EXPECT_DEATH(io_->start(transfer, odd), "not multiples of");
    EXPECT_DEATH(io_->start(transfer, request(IoKind::read, 100)), "not multiples of");
    EXPECT_DEATH(io_->start(transfer, request(IoKind::read, 0)), "empty range");
    odd = request(IoKind::read, 4 * kib);
    odd.data += 1;
    EXPECT_DEATH(io_->start(transfer, odd), "is not aligned");
    odd.file = nullptr;
    EXPECT_DEATH(io_->start(transfer, odd), "no open file");
    EXPECT_DEATH(Io(std::make_unique<ManualBackend>(1), {.chunk_bytes = 5000}), "power of two");
    EXPECT_DEATH(Io(std::make_unique<ManualBackend>(1), {.chunk_bytes = 2048 * kib}), "below a chunk");
    EXPECT_DEATH(io_->start(transfer, request(IoKind::read, 4 * kib, Urgency::write_back)), "has no class");
    EXPECT_DEATH(io_->start(transfer, request(IoKind::write, 4 * kib, Urgency::prefetch)), "has no class");
    io_->start(transfer, request(IoKind::read, 4 * kib));
    EXPECT_DEATH(io_->start(transfer, request(IoKind::read, 4 * kib)), "already started");
    EXPECT_DEATH(
        {
            Counted lost;
            io_->start(lost, flush());
        },
        "destroyed before it is done");
    transfer.then = [&] { io_->poll(); };
    io_->poll();
    backend_->complete_all();
    EXPECT_DEATH(io_->poll(), "done\\(\\) may not poll or wait");
    transfer.then = nullptr;
    io_->poll();
}

TEST(Io, ReadsAndWritesLargeTransfersThroughEveryBackendAndIsReadableFromOtherThreads) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("data");
    const File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    constexpr std::size_t bytes = 3 << 20;
    const ScratchMemory written(bytes);
    const ScratchMemory read(bytes);
    for (const auto kind : {std::optional<BackendKind>(), std::optional(BackendKind::threads)}) {
        fill_random(written.span(), kind ? 1 : 2);
        Io io(open_backend(file.fd(), {}, kind).backend, bounded(256 * kib, 64 * kib));
        std::atomic<bool> stop{false};
        std::thread watcher([&] {
            std::uint64_t before = 0;
            while (!stop) {
                const std::uint64_t now = io.statistics().total_write_bytes();
                EXPECT_GE(now, before);
                before = now;
                std::this_thread::yield();
            }
        });
        Counted transfer;
        io.start(transfer, {.kind = IoKind::write, .file = &file, .data = written.data(), .bytes = bytes});
        while (!transfer.idle()) io.wait(std::chrono::seconds(1));
        EXPECT_FALSE(transfer.error().has_value());
        io.start(transfer, {.kind = IoKind::flush, .file = &file});
        while (!transfer.idle()) io.wait(std::chrono::seconds(1));
        io.start(transfer, {.kind = IoKind::read, .file = &file, .data = read.data(), .bytes = bytes});
        while (!transfer.idle()) io.wait(std::chrono::seconds(1));
        stop = true;
        watcher.join();
        EXPECT_FALSE(transfer.error().has_value());
        EXPECT_EQ(std::memcmp(written.data(), read.data(), bytes), 0);
        EXPECT_EQ(io.statistics().total_read_bytes(), bytes);
        EXPECT_EQ(io.statistics().lane(IoKind::read, Urgency::demand).bytes.load(), bytes);
        EXPECT_EQ(io.statistics().flushes.load(), 1U);
    }
}

TEST(Io, DoesNotLoseAWakeThatComesWithACompletionOrBeforeTheWait) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("data");
    const File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    for (const auto kind : {std::optional<BackendKind>(), std::optional(BackendKind::threads)}) {
        Io io(open_backend(file.fd(), {}, kind).backend, {});
        for (int round = 0; round < 50; ++round) {
            std::thread other([&io] { io.wake(); });
            EXPECT_EQ(io.wait(std::chrono::hours(1)), 0U);
            other.join();
        }
        io.wake();
        EXPECT_EQ(io.wait(std::chrono::nanoseconds::max()), 0U);
    }
}

TEST_F(IoOverManual, ReturnsFromAWaitThatAWakeAndAChunkEndTogether) {
    build(bounded(8 * kib, 4 * kib));
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 16 * kib));
    io_->poll();
    io_->wake();
    backend_->complete_all();  // two chunks of four: nothing to deliver yet
    EXPECT_EQ(io_->wait(std::chrono::hours(1)), 0U);
    backend_->automatic = true;
    EXPECT_EQ(io_->wait(std::chrono::hours(1)), 1U);
}

TEST_F(IoOverManual, HandsOverWhatMayGoAndDeliversNothing) {
    build(bounded(8 * kib, 4 * kib));
    Counted first;
    Counted second;
    std::size_t seen = 0;
    first.then = [&] {
        io_->start(second, request(IoKind::write, 4 * kib));
        io_->hand_over();
        seen = in_flight(IoKind::write);
    };
    io_->start(first, request(IoKind::read, 12 * kib));
    io_->hand_over();
    EXPECT_EQ(backend_->in_flight.size(), 2U);  // the bound
    for (int chunks = 0; chunks < 2; ++chunks) {
        backend_->complete_all();
        io_->hand_over();  // sees what is back
        io_->hand_over();  // and what became possible by that
    }
    EXPECT_EQ(first.dones, 0);
    EXPECT_EQ(io_->poll(), 1U);
    EXPECT_EQ(seen, 1U);
    wait_to_the_end();
    EXPECT_EQ(second.dones, 1);
}

// What a reap brought back to be tried again goes to the kernel at once, however often that happens.
TEST_F(IoOverManual, HandsOverWhatIsTriedAgain) {
    build(bounded(8 * kib, 4 * kib));
    ASSERT_EQ(::ftruncate(file_.fd(), 64 * kib), 0);  // it does not end within the read
    Counted transfer;
    io_->start(transfer, request(IoKind::read, 4 * kib));
    io_->hand_over();
    backend_->complete_first(-EINTR);
    io_->hand_over();
    ASSERT_EQ(backend_->in_flight.size(), 1U);
    EXPECT_EQ(backend_->held_back, 0U);
    backend_->complete_first(512);
    io_->poll();
    ASSERT_EQ(backend_->in_flight.size(), 1U);
    EXPECT_EQ(backend_->held_back, 0U);
    wait_to_the_end();
}

TEST_F(IoOverManual, ReturnsFromAWaitWhoseWakeCameWhileWorkWasHandedOver) {
    build(bounded(8 * kib, 4 * kib));
    const auto before = backend_->now();
    io_->wake();
    io_->hand_over();
    EXPECT_EQ(io_->wait(std::chrono::hours(1)), 0U);
    EXPECT_EQ(backend_->now(), before);
}

// To ask for what is not there would only cost tries: of a file that ends within a block, at one, and that is empty.
TEST(Io, TheEndOfAFileIsToldAtTheFirstReadOfIt) {
    for (const std::uint64_t length : {5000U, 8192U, 511U, 0U}) {
        for (const Caching caching : {Caching::direct, Caching::buffered}) {
            SCOPED_TRACE(std::to_string(length) +
                         (caching == Caching::direct ? ", direct" : ", through the page cache"));
            const TemporaryDirectory directory;
            const std::string path = directory.file("data");
            std::ofstream(path) << std::string(length, 'x');
            const File file(AT_FDCWD, path, path, {.mode = FileMode::read_only, .caching = caching});
            Io io(open_backend(file.fd(), {}).backend, {.tries = 7});
            const ScratchMemory memory(16 * kib);
            Counted transfer;
            io.start(transfer, {.kind = IoKind::read, .file = &file, .data = memory.data(), .bytes = 16 * kib});
            ASSERT_FALSE(io.finish(transfer).has_value());
            ASSERT_TRUE(transfer.error().has_value());
            EXPECT_EQ(transfer.error()->errno_value, 0);
            EXPECT_EQ(transfer.error()->offset_bytes, length);
            EXPECT_EQ(transfer.error()->tries, 1);
            EXPECT_EQ(io.statistics().total_attempts(), 1U);
        }
    }
}

// Limits may be another device's: a profile that was copied along.
TEST(Io, AFileThatAsksForLongerAttemptsThanTheLimitsSayGetsThem) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("data");
    File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    const std::uint32_t alignment = file.alignment().offset_bytes;
    if (alignment == 1) GTEST_SKIP() << file.fallback();
    Io io(make_thread_backend({}), {.chunk_bytes = alignment / 2});
    const ScratchMemory written(4 * 4096), read(4 * 4096);
    fill_random(written.span(), 1);
    Counted transfer;
    for (const auto& [kind, memory] : {std::pair(IoKind::write, &written), std::pair(IoKind::read, &read)}) {
        io.start(transfer, {.kind = kind, .file = &file, .data = memory->data(), .offset_bytes = 0, .bytes = 4 * 4096});
        ASSERT_FALSE(io.finish(transfer).has_value());
        ASSERT_FALSE(transfer.error().has_value()) << transfer.error()->message();
    }
    EXPECT_TRUE(std::equal(read.span().begin(), read.span().end(), written.data()));
}

}  // namespace
}  // namespace penstock::aio
