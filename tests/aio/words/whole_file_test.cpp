#include "aio/words/whole_file.h"

#include "tests/temporary_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::aio {
namespace {

namespace fs = std::filesystem;

class WholeFile : public ::testing::Test {
   protected:
    int write(std::string_view text) {
        const int fd = ::open(aside_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        const int error = write_whole(fd, text);
        ::close(fd);
        return error;
    }
    static std::string text_of(const std::string& path) {
        std::ifstream file(path);
        return {std::istreambuf_iterator<char>(file), {}};
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_ / "file";
    std::string aside_ = directory_ / "file.tmp";
};

TEST_F(WholeFile, TakesThePlaceOfTheOneBefore) {
    for (const char* text : {"first", "second, which is longer", "third"}) {
        ASSERT_EQ(write(text), 0);
        ASSERT_EQ(give_name(aside_, path_), 0);
        EXPECT_EQ(text_of(path_), text);
        EXPECT_FALSE(fs::exists(aside_));
    }
}

// Which would end the process by SIGXFSZ if nobody held it back.
TEST_F(WholeFile, ThatMayNotBecomeAsLongIsAnErrno) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit short_files{.rlim_cur = 100, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &short_files), 0);
    const int error = write(std::string(1000, 'x'));
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(error, EFBIG);
}

TEST_F(WholeFile, IsGivenNoNameThatCannotBeHad) {
    ASSERT_EQ(write("text"), 0);
    EXPECT_EQ(give_name(aside_, directory_ / "missing/file"), ENOENT);
    fs::create_directories(path_);
    EXPECT_EQ(give_name(aside_, path_), EISDIR);
    EXPECT_EQ(text_of(aside_), "text");
    EXPECT_EQ(sync_name(directory_ / "missing/file"), ENOENT);
    EXPECT_EQ(sync_name("a name in the working directory"), 0);
}

}  // namespace
}  // namespace penstock::aio
