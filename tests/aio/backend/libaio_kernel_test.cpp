// The libaio backend on a kernel that refuses: io_submit and io_setup are this file's, found before the library's.
#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/aio_abi.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <vector>

namespace penstock::aio {
namespace {

// What the kernel of a test does; each counts down or stays until changed.
struct Kernel {
    int setup_error = 0;
    long longest_batch = 1 << 20;
    int calls_until_full = 1 << 30;  // then `full_calls` of them say EAGAIN
    int full_calls = 0;
    int refused_opcode = -1;  // EINVAL for these
};
Kernel kernel;

class LibaioKernel : public ::testing::Test {
   protected:
    LibaioKernel() : path_(directory_.file("data")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {
        kernel = {};
    }
    ~LibaioKernel() override { kernel = {}; }
    Attempt write_of(int place) {
        return {.kind = IoKind::write,
                .fd = file_.fd(),
                .data = memory_.data(),
                .offset_bytes = static_cast<std::uint64_t>(place) * 4096,
                .bytes = 4096};
    }
    std::vector<Attempt*> reap(std::size_t count) {
        std::vector<Attempt*> all;
        while (all.size() < count) {
            for (Attempt* one = backend_->reap(std::chrono::seconds(10)); one != nullptr; one = one->next) {
                all.push_back(one);
            }
        }
        return all;
    }

    TemporaryDirectory directory_;
    std::string path_;
    File file_;
    ScratchMemory memory_{4096};
    std::unique_ptr<Backend> backend_;
};

TEST_F(LibaioKernel, HandsOverInPiecesWhatIsNotTakenAtOnce) {
    backend_ = make_libaio_backend({.depth = 8});
    kernel.longest_batch = 1;
    std::vector<Attempt> all;
    for (int i = 0; i < 8; ++i) all.push_back(write_of(i));
    for (Attempt& one : all) EXPECT_TRUE(backend_->submit(one));
    EXPECT_EQ(reap(8).size(), 8U);
    for (const Attempt& one : all) EXPECT_EQ(one.result, 4096);
    EXPECT_EQ(file_.bytes(), 8U * 4096);
}

TEST_F(LibaioKernel, KeepsWhatAFullKernelDoesNotTakeWhileSomethingIsInFlight) {
    backend_ = make_libaio_backend({.depth = 8});
    kernel.longest_batch = 2;
    kernel.calls_until_full = 1;
    kernel.full_calls = 1;
    std::vector<Attempt> all;
    for (int i = 0; i < 6; ++i) all.push_back(write_of(i));
    for (Attempt& one : all) EXPECT_TRUE(backend_->submit(one));
    EXPECT_EQ(reap(6).size(), 6U);
    for (const Attempt& one : all) EXPECT_EQ(one.result, 4096);
}

TEST_F(LibaioKernel, TakesBackWhatAFullKernelDidNotTake) {
    backend_ = make_libaio_backend({.depth = 8});
    kernel.longest_batch = 2;
    kernel.calls_until_full = 1;
    kernel.full_calls = 1 << 30;
    std::vector<Attempt> all;
    for (int i = 0; i < 6; ++i) all.push_back(write_of(i));
    for (Attempt& one : all) EXPECT_TRUE(backend_->submit(one));
    std::size_t ended = 0;
    for (Attempt* one = backend_->reap(std::chrono::nanoseconds(0)); one != nullptr; one = one->next) ++ended;
    std::size_t handed_back = 0;
    for (Attempt* one = backend_->abandon(); one != nullptr; one = one->next, ++handed_back) {
        EXPECT_EQ(one->result, -ECANCELED);
    }
    EXPECT_EQ(handed_back, 4U);
    EXPECT_EQ(reap(2 - ended).size(), 2 - ended);
    EXPECT_EQ(file_.bytes(), 2U * 4096);
}

// Who sleeps on the descriptor learns of it, although nothing came back from the kernel.
TEST_F(LibaioKernel, WhatIsRefusedBeforeItIsReapedMakesTheDescriptorReadable) {
    backend_ = make_libaio_backend({.depth = 4});
    pollfd ready{.fd = backend_->ready_fd(), .events = POLLIN, .revents = 0};
    kernel.calls_until_full = 0;
    kernel.full_calls = 2;
    std::vector<Attempt> pair = {write_of(0), write_of(1)};
    for (Attempt& one : pair) EXPECT_TRUE(backend_->submit(one));
    EXPECT_EQ(::poll(&ready, 1, 0), 1);
    EXPECT_EQ(reap(2).size(), 2U);
    EXPECT_EQ(::poll(&ready, 1, 0), 0);
}

TEST_F(LibaioKernel, SaysAgainWhenAFullKernelHasNothingOfOurs) {
    backend_ = make_libaio_backend({.depth = 4});
    kernel.calls_until_full = 0;
    kernel.full_calls = 2;
    Attempt first = write_of(0);
    Attempt second = write_of(1);
    EXPECT_TRUE(backend_->submit(first));
    EXPECT_TRUE(backend_->submit(second));
    EXPECT_EQ(reap(2).size(), 2U);
    EXPECT_EQ(first.result, -EAGAIN);
    EXPECT_EQ(second.result, -EAGAIN);
    EXPECT_TRUE(backend_->submit(first));
    EXPECT_EQ(reap(1).front(), &first);
    EXPECT_EQ(first.result, 4096);
}

TEST_F(LibaioKernel, FlushesWithACallThatWaitsWhereTheKernelCannotFlushInTheBackground) {
    backend_ = make_libaio_backend({.depth = 4});
    kernel.refused_opcode = IOCB_CMD_FDSYNC;
    Attempt write = write_of(0);
    Attempt flush{.kind = IoKind::flush, .fd = file_.fd()};
    EXPECT_TRUE(backend_->submit(write));
    EXPECT_TRUE(backend_->submit(flush));
    reap(2);
    EXPECT_EQ(write.result, 4096);
    EXPECT_EQ(flush.result, 0);
}

TEST_F(LibaioKernel, IsWokenLateButNotNeverWhileThePollCannotBeArmed) {
    backend_ = make_libaio_backend({.depth = 4});
    backend_->wake();
    EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
    kernel.calls_until_full = 0;
    kernel.full_calls = 1;
    backend_->wake();
    for (int i = 0; i < 2; ++i) EXPECT_EQ(backend_->reap(std::chrono::hours(1)), nullptr);
}

TEST_F(LibaioKernel, SaysWhyItCannotBeSetUp) {
    kernel.refused_opcode = IOCB_CMD_POLL;
    EXPECT_THROW(make_libaio_backend({}), Error);
    kernel.setup_error = EAGAIN;
    try {
        make_libaio_backend({});
        FAIL() << "io_setup was refused";
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_EQ(message.find("io_setup: Resource temporarily unavailable (EAGAIN); "), 0U) << message;
        EXPECT_NE(message.find("fs.aio-max-nr"), std::string::npos) << message;
    }
}

}  // namespace
}  // namespace penstock::aio

extern "C" int io_setup(int requests, aio_context_t* context) {
    if (penstock::aio::kernel.setup_error != 0) return -penstock::aio::kernel.setup_error;
    return ::syscall(SYS_io_setup, requests, context) == 0 ? 0 : -errno;
}

extern "C" int io_submit(aio_context_t context, long count, iocb** places) {
    penstock::aio::Kernel& kernel = penstock::aio::kernel;
    if (places[0]->aio_lio_opcode == kernel.refused_opcode) return -EINVAL;
    if (kernel.calls_until_full-- <= 0 && kernel.full_calls-- > 0) return -EAGAIN;
    long taken = 0;
    while (taken < std::min(count, kernel.longest_batch) && places[taken]->aio_lio_opcode != kernel.refused_opcode) {
        ++taken;
    }
    const long result = ::syscall(SYS_io_submit, context, taken, places);
    return static_cast<int>(result < 0 ? -errno : result);
}
