#include "aio/file.h"
#include "tests/aio/deny_uring.h"
#include "tests/aio/scratch.h"

#include "aio/backend.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <thread>

namespace penstock {
namespace {

class OpenBackend : public ::testing::Test {
   protected:
    OpenBackend() : path_(directory_.file("probe")), file_(AT_FDCWD, path_, path_, {.mode = FileMode::create}) {}
    ScratchDirectory directory_;
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

TEST_F(OpenBackend, FallsBackToThreadsWhereUringIsDeniedAndSaysWhy) {
    for (const int error : {EPERM, ENOSYS}) {
        std::thread([&] {
            ASSERT_TRUE(deny_uring(error));
            const ChosenBackend chosen = open_backend(file_.fd(), {});
            EXPECT_STREQ(chosen.backend->name(), "threads");
            EXPECT_EQ(chosen.note.find("I/O goes through threads: io_uring cannot be used (io_uring_setup: "), 0U)
                << chosen.note;
            EXPECT_NE(chosen.note.find("seccomp"), std::string::npos) << chosen.note;
            EXPECT_EQ(chosen.note.find('\n'), std::string::npos);
        }).join();
    }
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
        EXPECT_NE(message.find("threads cannot be used (a read was tried and failed: Bad file descriptor (EBADF))"),
                  std::string::npos)
            << message;
    }
}

}  // namespace
}  // namespace penstock
