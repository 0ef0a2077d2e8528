#include "trainer/data/plain_file.h"
#include "aio/words/error.h"

#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <vector>

namespace penstock::trainer {
namespace {

TEST(PlainFile, NamesPathAndReason) {
    const TemporaryDirectory directory;
    try {
        const PlainFile file(directory / "missing", PlainFile::Mode::read);
        FAIL();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        EXPECT_EQ(std::string(error.what()), "cannot open " + (directory / "missing") + ": No such file or directory");
    }
    try {
        const PlainFile file(directory.path(), PlainFile::Mode::read);
        FAIL();
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("Is a directory"), std::string::npos);
    }
}

TEST(PlainFile, APipeIsRefusedAndNotWaitedFor) {
    const TemporaryDirectory directory;
    const std::string pipe = directory / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const auto mode : {PlainFile::Mode::read, PlainFile::Mode::replace, PlainFile::Mode::own})
        EXPECT_THROW(PlainFile(pipe, mode), Error);
}

TEST(PlainFile, IsLockedAgainstASecondOne) {
    const TemporaryDirectory directory;
    {
        PlainFile first(directory / "f", PlainFile::Mode::own);
        EXPECT_TRUE(first.try_lock());
        EXPECT_FALSE(PlainFile(directory / "f", PlainFile::Mode::own).try_lock());
        EXPECT_TRUE(first.has_its_name());
        testing::write_file(directory / "g", "");
        rename_durably(directory / "g", directory / "f");
        EXPECT_FALSE(first.has_its_name());
    }
    EXPECT_TRUE(PlainFile(directory / "f", PlainFile::Mode::own).try_lock());
}

TEST(PlainFile, AFailedWriteIsAStorageError) {
    const TemporaryDirectory directory;
    PlainFile file(directory / "f", PlainFile::Mode::replace);
    // RLIMIT_FSIZE gives a short write and then an error, without root.
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit small = before;
    small.rlim_cur = 1000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    ExitCode code = ExitCode::ok;
    try {
        file.write_at(0, std::vector<std::byte>(2000));
    } catch (const Error& error) {
        code = error.code();
    }
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_EQ(code, ExitCode::storage);
    EXPECT_EQ(file.bytes(), 1000U);
}

TEST(PlainFile, RenameReplacesAndReportsFailure) {
    const TemporaryDirectory directory;
    testing::write_file(directory / "a", "new");
    testing::write_file(directory / "b", "old");
    rename_durably(directory / "a", directory / "b");
    EXPECT_EQ(testing::read_file(directory / "b"), "new");
    EXPECT_THROW(rename_durably(directory / "a", directory / "b"), Error);
}

}  // namespace
}  // namespace penstock::trainer
