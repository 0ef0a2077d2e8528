// After construction the loop allocates nothing. An executable of its own: tests/allocations.h says why.
#include "aio/file.h"
#include "aio/io.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/allocations.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>

namespace penstock::aio {
namespace {

struct Repeated : Transfer {
    int dones = 0;
    void done() noexcept override { ++dones; }
};

// Nothing below allocates between the two readings of the counter, in any thread.
class IoAllocation : public ::testing::Test {
   protected:
    static constexpr std::uint64_t part = std::uint64_t{1} << 19;
    static constexpr std::size_t count = 7;

    IoAllocation() {
        file_.reserve(count * part);
        fill_random(memory_.span(), 1);
    }
    // Every kind and class in each round, with chunks and promotion.
    void start_all(Io& io) {
        const auto start = [&](std::size_t i, IoKind kind, Urgency urgency) {
            io.start(transfers_[i], {.kind = kind,
                                     .file = &file_,
                                     .data = memory_.data() + i * part,
                                     .offset_bytes = i * part,
                                     .bytes = part,
                                     .urgency = urgency});
        };
        start(0, IoKind::write, Urgency::write_back);
        start(1, IoKind::read, Urgency::prefetch);
        start(2, IoKind::write, Urgency::demand);
        start(3, IoKind::read, Urgency::demand);
        start(4, IoKind::write, Urgency::scrub);
        start(5, IoKind::read, Urgency::scrub);
        start(6, IoKind::read, Urgency::scrub);
        io.promote(transfers_[6], Urgency::prefetch);
        io.start(flush_, {.kind = IoKind::flush, .file = &file_});
        io.lend(loan_);
        io.give_back(loan_);
    }
    void run(Io& io, int rounds) {
        const std::uint64_t before = testing::allocations();
        for (int round = 0; round < rounds; ++round) {
            start_all(io);
            const auto stuck = io.finish_all();
            ASSERT_FALSE(stuck.has_value());
            for (const Repeated& transfer : transfers_) ASSERT_FALSE(transfer.error().has_value());
        }
        EXPECT_EQ(testing::allocations() - before, 0U) << io.backend_name();
        EXPECT_EQ(flush_.dones, rounds);
        EXPECT_EQ(loan_.dones, rounds);
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_.file("data");
    File file_{AT_FDCWD, path_, path_, {.mode = FileMode::create}};
    ScratchMemory memory_{count * part};
    std::array<Repeated, count> transfers_;
    Repeated flush_;
    Repeated loan_;
};

class IoAllocationOver : public IoAllocation, public ::testing::WithParamInterface<BackendKind> {};

TEST_P(IoAllocationOver, NothingWhileItRunsAndItsStatisticsAreRead) {
    std::unique_ptr<Backend> backend;
    try {
        backend = open_backend(file_.fd(), {.depth = 8}, GetParam()).backend;
    } catch (const Error& error) {
        GTEST_SKIP() << error.what();
    }
    Io io(std::move(backend), {.chunk_bytes = 64 << 10});
    std::atomic<bool> stop{false};
    std::atomic<bool> fell{false};  // the macros of GoogleTest allocate in a thread that is new to them
    std::thread watcher([&] {
        std::uint64_t most = 0;
        while (!stop) {
            const LaneStatistics& lane = io.statistics().lane(IoKind::read, Urgency::demand);
            const std::uint64_t now = lane.latency.snapshot().count();
            if (now < most) fell = true;
            most = now;
            std::this_thread::yield();
        }
    });
    run(io, 20);
    stop = true;
    watcher.join();
    EXPECT_FALSE(fell.load());
    EXPECT_EQ(io.statistics().lane(IoKind::read, Urgency::demand).latency.snapshot().count(), 20U);
}

INSTANTIATE_TEST_SUITE_P(EachBackend, IoAllocationOver,
                         ::testing::Values(BackendKind::io_uring, BackendKind::libaio, BackendKind::threads),
                         [](const auto& each) { return std::string(word_of(each.param)); });

// Pauses and short transfers, which no backend at hand makes by itself.
class Hesitant final : public Backend {
   public:
    bool submit(Attempt& attempt) override {
        attempt.result = answer(attempt);
        attempt.next = std::exchange(finished_, &attempt);
        return true;
    }
    Attempt* reap(std::chrono::nanoseconds timeout) override {
        if (finished_ == nullptr) now_ += timeout;
        return std::exchange(finished_, nullptr);
    }
    void wake() noexcept override {}
    Attempt* abandon() noexcept override { return nullptr; }
    std::chrono::steady_clock::time_point now() const noexcept override { return now_; }
    std::size_t depth() const noexcept override { return 8; }
    const char* name() const noexcept override { return "hesitant"; }

   private:
    std::int32_t answer(const Attempt& attempt) {
        if (attempts_++ % 3 == 0) return -EAGAIN;
        const std::uint32_t half = attempt.bytes / 2 / 4096 * 4096;
        return static_cast<std::int32_t>(half > 0 && attempts_ % 3 == 2 ? half : attempt.bytes);
    }

    int attempts_ = 0;
    Attempt* finished_ = nullptr;
    std::chrono::steady_clock::time_point now_;
};

TEST_F(IoAllocation, NothingForPausesAndShortTransfers) {
    Io io(std::make_unique<Hesitant>(), {.chunk_bytes = 64 << 10});
    run(io, 20);
    EXPECT_GT(io.statistics().total_retried(), 0U);
    EXPECT_GT(io.statistics().total_resumed(), 0U);
}

TEST(Io, CountingAllocationsWorks) {
    const std::uint64_t before = testing::allocations();
    delete new int(1);
    void* volatile kept = ::operator new(8);
    ::operator delete(kept);
    EXPECT_GT(testing::allocations(), before);
}

}  // namespace
}  // namespace penstock::aio
