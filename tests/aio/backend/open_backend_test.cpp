#include "aio/backend.h"
#include "aio/file.h"
#include "aio/words/error.h"
#include "tests/aio/backend/deny_uring.h"
#include "tests/aio/fakes/scratch.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

extern "C" __attribute__((weak)) void __lsan_disable();
extern "C" __attribute__((weak)) void __lsan_enable();

namespace penstock::aio {
namespace {

class OpenBackend : public ::testing::Test {
   protected:
    OpenBackend() : path_(directory_.file("probe")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {}
    TemporaryDirectory directory_;
    std::string path_;
    File file_;
};

TEST_F(OpenBackend, TakesTheFastestThatReadsAndHasNothingToSay) {
    const ChosenBackend chosen = open_backend(file_.fd(), {});
    if (std::strcmp(chosen.backend->name(), "io_uring") != 0) GTEST_SKIP() << chosen.note;
    EXPECT_EQ(chosen.note, "");
}

TEST_F(OpenBackend, TakesOnlyTheWantedOne) {
    EXPECT_STREQ(open_backend(file_.fd(), {}, BackendKind::threads).backend->name(), "threads");
}

// What follows io_uring: libaio where the file is direct, else threads.
TEST_F(OpenBackend, FallsBackWhereUringIsDeniedAndSaysWhy) {
    const std::string next = file_.direct() ? "libaio" : "threads";
    for (const int error : {EPERM, ENOSYS}) {
        std::thread([&] {
            ASSERT_TRUE(deny_uring(error));
            const ChosenBackend chosen = open_backend(file_.fd(), {});
            EXPECT_EQ(chosen.backend->name(), next);
            const std::string expected = "I/O goes through " + next + ": io_uring cannot be used (io_uring_setup: ";
            EXPECT_EQ(chosen.note.find(expected), 0U) << chosen.note;
            EXPECT_NE(chosen.note.find("seccomp"), std::string::npos) << chosen.note;
            EXPECT_EQ(chosen.note.find('\n'), std::string::npos);
        }).join();
    }
}

TEST_F(OpenBackend, FallsBackToThreadsWhereBothAreDeniedAndNamesBoth) {
    if (!file_.direct()) GTEST_SKIP() << file_.fallback();
    std::thread([&] {
        ASSERT_TRUE(deny_calls({__NR_io_uring_setup, __NR_io_setup}, EPERM));
        const ChosenBackend chosen = open_backend(file_.fd(), {});
        EXPECT_STREQ(chosen.backend->name(), "threads");
        EXPECT_EQ(chosen.note.find("I/O goes through threads: io_uring cannot be used (io_uring_setup: "), 0U);
        EXPECT_NE(chosen.note.find(", libaio cannot be used (io_setup: "), std::string::npos) << chosen.note;
        EXPECT_EQ(chosen.note.find('\n'), std::string::npos);
    }).join();
}

TEST_F(OpenBackend, PassesOverLibaioForAFileOfThePageCacheAndSaysNothingOfIt) {
    const File buffered(AT_FDCWD, path_, path_, {.caching = Caching::buffered});
    std::thread([&] {
        ASSERT_TRUE(deny_uring(EPERM));
        const ChosenBackend chosen = open_backend(buffered.fd(), {});
        EXPECT_STREQ(chosen.backend->name(), "threads");
        EXPECT_EQ(chosen.note.find("libaio"), std::string::npos) << chosen.note;
    }).join();
}

TEST_F(OpenBackend, RefusesAWantedLibaioForAFileOfThePageCacheAndSaysWhy) {
    const File buffered(AT_FDCWD, path_, path_, {.caching = Caching::buffered});
    try {
        open_backend(buffered.fd(), {}, BackendKind::libaio);
        FAIL() << "libaio was taken";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "no I/O backend works here: libaio cannot be used (the file goes through the page cache, where "
                     "libaio waits for each I/O).");
    }
}

// A pipe that nobody writes to: a read of it never comes back, as on a stuck device.
TEST_F(OpenBackend, GivesUpAReadThatDoesNotComeBackAndLeavesItToTheKernel) {
    try {
        make_uring_backend({});
    } catch (const Error& error) {
        GTEST_SKIP() << error.what();
    }
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const BackendOptions options{.probe_deadline = std::chrono::milliseconds(20)};
    if (__lsan_disable != nullptr) __lsan_disable();  // what the kernel keeps is given up on purpose
    std::string message;
    try {
        open_backend(pipe[0], options);
    } catch (const Error& error) {
        message = error.what();
    }
    if (__lsan_enable != nullptr) __lsan_enable();
    EXPECT_EQ(message.find("no I/O backend works here: io_uring cannot be used (a read was tried and has not come back "
                           "for 20 ms), threads cannot be used ("),
              0U)
        << message;
    // The read is still there: its memory must be, too.
    const std::vector<char> bytes(64 << 10, 'x');
    EXPECT_EQ(::write(pipe[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ::close(pipe[0]);
    ::close(pipe[1]);
}

TEST_F(OpenBackend, RefusesWhenTheWantedOneIsDenied) {
    std::thread([&] {
        ASSERT_TRUE(deny_uring(EPERM));
        EXPECT_THROW(open_backend(file_.fd(), {}, BackendKind::io_uring), Error);
    }).join();
}

TEST_F(OpenBackend, NamesEveryBackendWhenNoneCanRead) {
    try {
        open_backend(-1, {});
        FAIL() << "a closed descriptor was read";
    } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_NE(message.find("io_uring cannot be used"), std::string::npos) << message;
        EXPECT_NE(message.find("threads cannot be used (a read was tried and failed: Bad file descriptor (EBADF)"),
                  std::string::npos)
            << message;
    }
}

}  // namespace
}  // namespace penstock::aio
