// Backend::ready_fd(), asked of every backend.
#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <sched.h>

#include <cerrno>
#include <chrono>
#include <memory>
#include <string>

namespace penstock::aio {
namespace {

constexpr int long_ms = 20'000;

bool readable(int fd, int timeout_ms) {
    pollfd asked = {.fd = fd, .events = POLLIN, .revents = 0};
    int answers = 0;
    do {
        answers = ::poll(&asked, 1, timeout_ms);
    } while (answers < 0 && errno == EINTR);
    return answers == 1;
}

class ReadyFd : public ::testing::TestWithParam<BackendKind> {
   protected:
    ReadyFd() : file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {
        try {
            backend_ = open_backend(file_.fd(), {}, GetParam()).backend;
        } catch (const Error& error) {
            why_not_ = error.what();
        }
    }
    void SetUp() override {
        if (!backend_) GTEST_SKIP() << why_not_;
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_.file("data");
    File file_;
    std::unique_ptr<Backend> backend_;
    std::string why_not_;
};

// A flush ends in another thread of the kernel or of the backend, so that of many some end after the first reap.
TEST_P(ReadyFd, IsReadableOnceSomethingHasEndedAndNoLongerWhenPollsHaveTakenIt) {
    const int fd = backend_->ready_fd();
    ASSERT_GE(fd, 0);
    EXPECT_EQ(backend_->ready_fd(), fd);
    int waits = 0;
    for (int round = 0; round < 500; ++round) {
        Attempt attempt;
        attempt.kind = IoKind::flush;
        attempt.fd = file_.fd();
        attempt.result = -1;
        ASSERT_TRUE(backend_->submit(attempt));
        while (backend_->reap(std::chrono::nanoseconds(0)) == nullptr) {
            ++waits;
            ASSERT_TRUE(readable(fd, long_ms)) << "an attempt has ended, or never does";
        }
        EXPECT_EQ(attempt.result, 0);
        // The kernel may signal a moment after the completion was there to be seen.
        for (int polls = 0; readable(fd, 0); ++polls) {
            ASSERT_LT(polls, 100'000) << "it stays readable with nothing in flight";
            EXPECT_EQ(backend_->reap(std::chrono::nanoseconds(0)), nullptr);
            ::sched_yield();
        }
    }
    if (waits == 0) GTEST_SKIP() << "every flush ended before it was waited for";
}

INSTANTIATE_TEST_SUITE_P(All, ReadyFd,
                         ::testing::Values(BackendKind::io_uring, BackendKind::libaio, BackendKind::threads),
                         [](const auto& kind) { return std::string(word_of(kind.param)); });

}  // namespace
}  // namespace penstock::aio
