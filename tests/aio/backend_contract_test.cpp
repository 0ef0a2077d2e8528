// What aio/backend.h promises, asked of every backend.
#include "aio/backend.h"
#include "aio/file.h"
#include "tests/aio/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace penstock {
namespace {

using std::chrono::nanoseconds;
using std::chrono::seconds;

class BackendContract : public ::testing::TestWithParam<BackendKind> {
   protected:
    BackendContract()
        : path_(directory_.file("data")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}), memory_(1 << 20) {
        try {
            backend_ = GetParam() == BackendKind::io_uring ? make_uring_backend({.depth = 8})
                                                           : make_thread_backend({.depth = 8});
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

    ScratchDirectory directory_;
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

TEST_P(BackendContract, GivesUpWaitingAtTheTimeout) {
    EXPECT_EQ(backend_->reap(std::chrono::milliseconds(5)), nullptr);
    EXPECT_EQ(backend_->reap(nanoseconds(1)), nullptr);
}

INSTANTIATE_TEST_SUITE_P(All, BackendContract, ::testing::Values(BackendKind::io_uring, BackendKind::threads),
                         [](const auto& each) { return each.param == BackendKind::io_uring ? "io_uring" : "threads"; });

}  // namespace
}  // namespace penstock
