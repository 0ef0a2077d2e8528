// What aio/backend.h promises, asked of every backend.
#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "tests/aio/backend/every_backend.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/aio/fakes/stuck_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace penstock::aio {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

class BackendContract : public ::testing::TestWithParam<BackendCase> {
   protected:
    BackendContract()
        : path_(directory_.file("data")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}), memory_(1 << 20) {
        try {
            backend_ = make_backend(GetParam(), {.depth = 8, .threads_per_device = 2});
        } catch (const Error& error) {
            why_not_ = error.what();
        }
    }
    void SetUp() override {
        if (!backend_) GTEST_SKIP() << why_not_;
    }

    Attempt attempt(IoKind kind, std::uint64_t offset, std::uint32_t bytes) {
        Attempt made;
        made.kind = kind;
        made.fd = file_.fd();
        made.data = kind == IoKind::flush ? nullptr : memory_.data() + offset;
        made.offset_bytes = offset;
        made.bytes = bytes;
        made.result = 12345678;
        return made;
    }
    std::vector<Attempt*> reap(std::size_t count) {
        std::vector<Attempt*> all;
        while (all.size() < count) {
            for (Attempt* one = backend_->reap(seconds(10)); one != nullptr; one = one->next) all.push_back(one);
        }
        return all;
    }
    std::int32_t run(Attempt one) {
        EXPECT_TRUE(backend_->submit(one));
        reap(1);
        return one.result;
    }

    TemporaryDirectory directory_;
    std::string path_;
    File file_;
    ScratchMemory memory_;
    std::unique_ptr<Backend> backend_;
    std::string why_not_;
};

TEST_P(BackendContract, WritesFlushesAndReadsBack) {
    fill_random(memory_.span(), 1);
    const std::vector<std::byte> expected(memory_.data(), memory_.data() + (1 << 20));
    EXPECT_EQ(run(attempt(IoKind::write, 0, 1 << 20)), 1 << 20);
    EXPECT_EQ(run(attempt(IoKind::flush, 0, 0)), 0);
    std::memset(memory_.data(), 0, 1 << 20);
    EXPECT_EQ(run(attempt(IoKind::read, 0, 1 << 20)), 1 << 20);
    EXPECT_EQ(std::memcmp(memory_.data(), expected.data(), expected.size()), 0);
}

TEST_P(BackendContract, ReportsTheErrnoAndTheShortCountAsTheyAre) {
    Attempt closed = attempt(IoKind::read, 0, 4096);
    closed.fd = -1;
    EXPECT_EQ(run(closed), -EBADF);
    closed = attempt(IoKind::flush, 0, 0);
    closed.fd = -1;
    EXPECT_EQ(run(closed), -EBADF);
    EXPECT_EQ(run(attempt(IoKind::write, 0, 4096)), 4096);
    EXPECT_EQ(run(attempt(IoKind::read, 0, 16384)), 4096);
    EXPECT_EQ(run(attempt(IoKind::read, 8192, 4096)), 0);
}

TEST_P(BackendContract, TakesAsManyAsItsDepthAndNoMore) {
    EXPECT_EQ(backend_->depth(), 8U);
    for (int round = 0; round < 3; ++round) {
        std::vector<Attempt> all(9, attempt(IoKind::write, 0, 4096));
        for (std::size_t i = 0; i < 8; ++i) EXPECT_TRUE(backend_->submit(all[i]));
        EXPECT_FALSE(backend_->submit(all[8]));
        EXPECT_EQ(reap(8).size(), 8U);
        EXPECT_EQ(backend_->reap(nanoseconds(0)), nullptr);
    }
}

TEST_P(BackendContract, DoesNotForgetAWakeThatCameBeforeTheWait) {
    for (int round = 0; round < 20; ++round) {
        backend_->wake();
        backend_->wake();
        EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
        while (backend_->reap(nanoseconds(0)) != nullptr) {
        }
    }
}

TEST_P(BackendContract, IsWokenByAnotherThread) {
    for (int round = 0; round < 20; ++round) {
        std::thread other([this] { backend_->wake(); });
        EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
        other.join();
    }
}

Backend* woken_by_signal = nullptr;

TEST_P(BackendContract, IsWokenByASignalHandler) {
    woken_by_signal = backend_.get();
    struct sigaction action = {};
    struct sigaction before = {};
    action.sa_handler = [](int) { woken_by_signal->wake(); };
    ::sigaction(SIGUSR1, &action, &before);
    for (int round = 0; round < 20; ++round) {
        ::raise(SIGUSR1);
        EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
    }
    ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_P(BackendContract, GivesUpWaitingAtTheTimeout) {
    EXPECT_EQ(backend_->reap(std::chrono::milliseconds(5)), nullptr);
    EXPECT_EQ(backend_->reap(nanoseconds(1)), nullptr);
}

// An early return is allowed, a loop that never sleeps is not what is meant by it.
TEST_P(BackendContract, SleepsWhileItWaits) {
    const auto end = backend_->now() + std::chrono::milliseconds(50);
    int reaps = 0;
    for (; backend_->now() < end; ++reaps) EXPECT_EQ(backend_->reap(end - backend_->now()), nullptr);
    EXPECT_LE(reaps, 10);
}

TEST_P(BackendContract, GoesByTheSteadyClock) {
    const auto before = std::chrono::steady_clock::now();
    const auto now = backend_->now();
    EXPECT_LE(before, now);
    EXPECT_LE(now, std::chrono::steady_clock::now());
}

// One that the kernel refuses at once must not take its neighbours with it.
TEST_P(BackendContract, EndsTheNeighboursOfARefusedAttempt) {
    std::vector<Attempt> all(8, attempt(IoKind::write, 0, 4096));
    for (const std::size_t bad : {0U, 3U, 7U}) all[bad].fd = -1;
    for (Attempt& one : all) EXPECT_TRUE(backend_->submit(one));
    reap(8);
    for (std::size_t i = 0; i < 8; ++i) EXPECT_EQ(all[i].result, i == 0 || i == 3 || i == 7 ? -EBADF : 4096) << i;
}

// ---------------------------------------------------------------- giving up

// Reads from the page cache are done within the system call: one that was begun shows in the memory at once.
class BackendContractCached : public BackendContract {
   protected:
    BackendContractCached() {
        const std::vector<char> ones(memory_.span().size(), '1');
        EXPECT_EQ(::pwrite(cached_.fd(), ones.data(), ones.size(), 0), static_cast<ssize_t>(ones.size()));
        std::memset(memory_.data(), '0', ones.size());
    }
    Attempt read(std::uint64_t offset, std::uint32_t bytes) {
        Attempt made = attempt(IoKind::read, offset, bytes);
        made.fd = cached_.fd();
        return made;
    }
    bool begun(const Attempt& one) const { return *one.data == std::byte{'1'}; }
    bool begins_in_the_call() const { return GetParam().kind != BackendKind::threads; }

    const std::string cached_path_ = directory_.file("cached");
    const File cached_{AT_FDCWD, cached_path_, cached_path_, {.mode = FileMode::create, .caching = Caching::buffered}};
};

TEST_P(BackendContractCached, LargeAttemptsBeginAtOnceAndSmallOnesInPairs) {
    Attempt large = read(0, 64 << 10);
    Attempt second = read(64 << 10, 64 << 10);
    Attempt small = read(128 << 10, 32 << 10);
    Attempt pair = read(160 << 10, 32 << 10);
    for (Attempt* one : {&large, &second}) {
        EXPECT_TRUE(backend_->submit(*one));
        EXPECT_TRUE(!begins_in_the_call() || begun(*one));
    }
    EXPECT_TRUE(backend_->submit(small));
    EXPECT_TRUE(!begins_in_the_call() || !begun(small));
    EXPECT_TRUE(backend_->submit(pair));
    EXPECT_TRUE(!begins_in_the_call() || (begun(small) && begun(pair)));
    reap(4);
    EXPECT_EQ(pair.result, 32 << 10);
}

TEST_P(BackendContractCached, AbandonHandsBackWhatIsNeverBegun) {
    constexpr std::size_t count = 7;
    std::vector<Attempt> all;
    for (std::size_t i = 0; i < count; ++i) all.push_back(read(i * 4096, 4096));
    for (Attempt& one : all) EXPECT_TRUE(backend_->submit(one));
    std::size_t handed_back = 0;
    for (Attempt* one = backend_->abandon(); one != nullptr; one = one->next, ++handed_back) {
        EXPECT_EQ(one->result, -ECANCELED);
    }
    EXPECT_TRUE(!begins_in_the_call() || handed_back == 1) << handed_back;
    reap(count - handed_back);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(backend_->reap(nanoseconds(0)), nullptr);
    for (std::size_t i = 0; i < count; ++i) {
        EXPECT_EQ(begun(all[i]), all[i].result == 4096) << i;
    }
}

TEST_P(BackendContract, AbandonLeavesAloneWhatHasEnded) {
    Attempt one = attempt(IoKind::write, 0, 4096);
    EXPECT_TRUE(backend_->submit(one));
    reap(1);
    EXPECT_EQ(backend_->abandon(), nullptr);
    EXPECT_EQ(one.result, 4096);
}

TEST_P(BackendContract, IsStillWokenAfterItWasAbandoned) {
    backend_->abandon();
    for (int round = 0; round < 3; ++round) {
        backend_->wake();
        EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
    }
}

using BackendContractDeathTest = BackendContract;

TEST_P(BackendContractDeathTest, TakesNothingAfterItWasAbandoned) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    Attempt one = attempt(IoKind::write, 0, 4096);
    backend_->abandon();
    EXPECT_DEATH(backend_->submit(one), "abandoned");
}

INSTANTIATE_TEST_SUITE_P(All, BackendContract, every_backend(), name_of_backend);
INSTANTIATE_TEST_SUITE_P(All, BackendContractCached, every_backend(), name_of_backend);
INSTANTIATE_TEST_SUITE_P(All, BackendContractDeathTest, every_backend(), name_of_backend);

// ---------------------------------------------------------------- a stuck kernel

class StuckThreads : public ::testing::Test {
   protected:
    void SetUp() override {
        ASSERT_EQ(::ftruncate(file.fd(), 4096), 0);
        if (!memory.works()) GTEST_SKIP() << "userfaultfd is not allowed here";
    }
    const TemporaryDirectory directory;
    const std::string path = directory.file("data");
    const File file{AT_FDCWD, path, path, {.mode = FileMode::create, .caching = Caching::buffered}};
    const StuckMemory memory;
};

TEST_F(StuckThreads, AbandonTakesBackWhatAStuckWorkerKeepsWaiting) {
    const std::unique_ptr<Backend> backend = make_thread_backend({.depth = 4, .threads_per_device = 1});
    std::vector<Attempt> all(4);
    for (Attempt& one : all) {
        one = {.kind = IoKind::read, .fd = file.fd(), .data = memory.data(), .bytes = 4096};
        EXPECT_TRUE(backend->submit(one));
    }
    memory.wait_until_somebody_is_stuck();
    std::size_t handed_back = 0;
    for (Attempt* one = backend->abandon(); one != nullptr; one = one->next, ++handed_back) {
        EXPECT_EQ(one->result, -ECANCELED);
        EXPECT_NE(one, &all[0]);
    }
    EXPECT_EQ(handed_back, 3U);
    EXPECT_EQ(backend->reap(nanoseconds(0)), nullptr);
    memory.let_go();
    Attempt* last = nullptr;
    while (last == nullptr) last = backend->reap(seconds(10));
    EXPECT_EQ(last, &all[0]);
    EXPECT_EQ(last->result, 4096);
}

TEST_F(StuckThreads, AStuckDeviceDoesNotHoldUpAnother) {
    const std::unique_ptr<Backend> backend = make_thread_backend({.depth = 32, .threads_per_device = 1});
    std::vector<Attempt> stuck(4);
    for (Attempt& one : stuck) {
        one = {.kind = IoKind::read, .fd = file.fd(), .data = memory.data(), .bytes = 4096, .device = 7};
        EXPECT_TRUE(backend->submit(one));
    }
    memory.wait_until_somebody_is_stuck();
    std::vector<Attempt> others(20);
    std::vector<std::byte> bytes(others.size() * 4096);
    std::size_t back = 0;
    for (std::size_t i = 0; i < others.size(); ++i) {
        others[i] = {
            .kind = IoKind::read, .fd = file.fd(), .data = &bytes[i * 4096], .bytes = 4096, .device = 8 + i % 10};
        EXPECT_TRUE(backend->submit(others[i]));
    }
    const auto end = std::chrono::steady_clock::now() + seconds(10);
    while (back < others.size() && std::chrono::steady_clock::now() < end) {
        for (const Attempt* one = backend->reap(seconds(1)); one != nullptr; one = one->next, ++back)
            EXPECT_GE(one->device, 8U);
    }
    EXPECT_EQ(back, others.size());
    memory.let_go();
    for (back = others.size() - back + stuck.size(); back > 0;) {
        for (const Attempt* one = backend->reap(seconds(1)); one != nullptr; one = one->next) --back;
    }
}

}  // namespace
}  // namespace penstock::aio
