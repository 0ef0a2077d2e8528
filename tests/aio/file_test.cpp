#include "aio/file.h"
#include "aio/words/error.h"

#include "tests/aio/fakes/scratch.h"
#include "tests/refusal.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <iterator>
#include <optional>

namespace penstock::aio {
namespace {

std::string error_of(const std::string& path, FileOptions options, ExitCode expected = ExitCode::storage) {
    return refusal_of(expected, [&] { const File file(AT_FDCWD, path, path, options); });
}

TEST(File, CreatesWithModeForTheOwnerOnlyAndRefusesWhatIsThere) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("new");
    { const File file(AT_FDCWD, path, path, {.mode = FileMode::create}); }
    struct stat status = {};
    ASSERT_EQ(::stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    EXPECT_EQ(
        error_of(path, {.mode = FileMode::create}),
        "cannot create " + path + ": File exists (EEXIST); it must not exist yet; choose another place or remove it.");
}

std::size_t name_count(const std::string& directory) {
    const std::filesystem::directory_iterator all(directory);
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(File, WithoutANameIsNobodyElsesAndLeavesNothing) {
    const TemporaryDirectory directory;
    const int fd = ::open(directory.path().c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    std::optional<File> file = File::nameless(fd, "shown", Caching::direct);
    if (!file) GTEST_SKIP() << "this file system has no files without a name";
    EXPECT_EQ(file->path(), "shown");
    EXPECT_EQ(name_count(directory.path()), 0U);
    struct stat status = {};
    ASSERT_EQ(::fstat(file->fd(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    EXPECT_EQ(status.st_nlink, 0U);
    EXPECT_NE(
        ::linkat(AT_FDCWD, ("/proc/self/fd/" + std::to_string(file->fd())).c_str(), fd, "name", AT_SYMLINK_FOLLOW), 0);
    file->reserve(1 << 20);
    EXPECT_EQ(file->bytes(), 1U << 20);
    const File named(fd, "beside", "beside", {.mode = FileMode::create});
    EXPECT_EQ(file->direct(), named.direct());
    EXPECT_EQ(file->alignment().offset_bytes, named.alignment().offset_bytes);
    EXPECT_EQ(file->device(), named.device());
    ::close(fd);
}

TEST(File, WithoutANameIsNoneWhereTheFileSystemHasNoneAndNamesTheDirectoryOtherwise) {
    if (::geteuid() == 0) {  // nobody else may try in /proc
        const int proc = ::open("/proc", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
        EXPECT_FALSE(File::nameless(proc, "shown", Caching::direct));
        ::close(proc);
    }
    EXPECT_NE(refusal_of(ExitCode::storage, [] { File::nameless(-1, "shown", Caching::direct); }).find("shown"),
              std::string::npos);
}

TEST(File, NamesTheMissingFile) {
    EXPECT_EQ(error_of("/nowhere/at/all", {}),
              "cannot open /nowhere/at/all: No such file or directory (ENOENT); check that the path exists.");
}

TEST(File, DoesNotFollowASymbolicLink) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("real");
    { const File file(AT_FDCWD, path, path, {.mode = FileMode::create}); }
    ASSERT_EQ(::symlink(path.c_str(), directory.file("link").c_str()), 0);
    EXPECT_NE(error_of(directory.file("link"), {}).find("symbolic links are not followed"), std::string::npos);
    ASSERT_EQ(::symlink("/nowhere", directory.file("dangling").c_str()), 0);
    EXPECT_NE(error_of(directory.file("dangling"), {.mode = FileMode::create}), "accepted");
}

TEST(File, RefusesDirectoriesAndPipesWithoutHanging) {
    const TemporaryDirectory directory;
    const std::string pipe = directory.file("pipe");
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    for (const FileMode mode : {FileMode::read_only, FileMode::read_write}) {
        EXPECT_NE(error_of(pipe, {.mode = mode}).find("neither a regular file"), std::string::npos);
    }
    EXPECT_NE(error_of("/tmp", {.mode = FileMode::read_only}).find("neither a regular file"), std::string::npos);
}

TEST(File, OpensRelativeToADirectoryAndShowsTheGivenPath) {
    const TemporaryDirectory directory;
    const int fd = ::open(directory.file("").c_str(), O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    const File file(fd, "inside", "store/inside", {.mode = FileMode::create});
    ::close(fd);
    EXPECT_EQ(file.path(), "store/inside");
    EXPECT_EQ(::access(directory.file("inside").c_str(), F_OK), 0);
}

TEST(File, ReallyGivesDirectIoAtTheAlignmentItReports) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("direct");
    File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    if (!file.direct()) GTEST_SKIP() << file.fallback();
    EXPECT_EQ(file.fallback(), "");
    EXPECT_NE(::fcntl(file.fd(), F_GETFL) & O_DIRECT, 0);
    EXPECT_EQ(::fcntl(file.fd(), F_GETFL) & O_NONBLOCK, 0);  // io_uring would answer EAGAIN
    EXPECT_NE(::fcntl(file.fd(), F_GETFD) & FD_CLOEXEC, 0);
    const ScratchMemory memory(8192);
    fill_random(memory.span(), 1);
    const std::size_t unit = file.alignment().offset_bytes;
    ASSERT_LE(unit, 8192U);
    EXPECT_EQ(::pwrite(file.fd(), memory.data(), unit, static_cast<off_t>(unit)), static_cast<ssize_t>(unit));
    EXPECT_EQ(file.bytes(), 2 * unit);
}

TEST(File, GoesThroughThePageCacheWhereDirectIoIsRefusedAndSaysWhy) {
    const File file(AT_FDCWD, "/proc/self/status", "/proc/self/status", {.mode = FileMode::read_only});
    EXPECT_FALSE(file.direct());
    EXPECT_EQ(
        file.fallback(),
        "/proc/self/status goes through the page cache, because the file system refuses O_DIRECT: Invalid argument "
        "(EINVAL)");
    EXPECT_EQ(file.alignment().offset_bytes, 1U);
    EXPECT_EQ(::fcntl(file.fd(), F_GETFL) & O_DIRECT, 0);
}

TEST(File, IsBufferedWithoutAReasonWhenAskedToBe) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("buffered");
    const File file(AT_FDCWD, path, path, {.mode = FileMode::create, .caching = Caching::buffered});
    EXPECT_FALSE(file.direct());
    EXPECT_EQ(file.fallback(), "");
    EXPECT_EQ(file.alignment().memory_bytes, 1U);
}

TEST(File, SyncsEachWriteWhenAskedTo) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("manifest");
    const File file(AT_FDCWD, path, path, {.mode = FileMode::create, .sync = Sync::each_write});
    EXPECT_EQ(::fcntl(file.fd(), F_GETFL) & O_DSYNC, O_DSYNC);
}

TEST(File, ReservesSpaceAndLength) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("reserved");
    File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    file.reserve(1 << 20);
    EXPECT_EQ(file.bytes(), 1U << 20);
    struct stat status = {};
    ASSERT_EQ(::fstat(file.fd(), &status), 0);
    EXPECT_GE(status.st_blocks * 512, 1 << 20);
    file.reserve(4096);
    EXPECT_EQ(file.bytes(), 1U << 20);
}

TEST(File, ReservesWhatLiesPastItsEndAlone) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("longer");
    File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    ASSERT_EQ(::ftruncate(file.fd(), 1 << 20), 0);
    file.reserve_past_end(3 << 20);
    EXPECT_EQ(file.bytes(), 3U << 20);
    struct stat status = {};
    ASSERT_EQ(::fstat(file.fd(), &status), 0);
    EXPECT_GE(status.st_blocks * 512, 2 << 20);
    EXPECT_LT(status.st_blocks * 512, 3 << 20) << "what was a hole was reserved";
}

TEST(File, SaysNeededAndFreeBytesBeforeItFillsTheDisk) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("huge");
    File file(AT_FDCWD, path, path, {.mode = FileMode::create});
    try {
        file.reserve(1ULL << 60);
        FAIL() << "an exbibyte was reserved";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::does_not_fit);
        const std::string message = error.what();
        EXPECT_NE(message.find(path + ": it needs 1152921504606846976 more bytes"), std::string::npos) << message;
        EXPECT_NE(message.find("bytes free"), std::string::npos) << message;
        EXPECT_NE(message.find("bytes are missing"), std::string::npos) << message;
    }
    EXPECT_EQ(file.bytes(), 0U);
}

TEST(File, MovesItsDescriptorAndClosesItOnce) {
    const TemporaryDirectory directory;
    const std::string path = directory.file("moved");
    File first(AT_FDCWD, path, path, {.mode = FileMode::create});
    const int fd = first.fd();
    File second = std::move(first);
    EXPECT_EQ(first.fd(), -1);  // NOLINT: the moved-from state is the subject
    EXPECT_EQ(second.fd(), fd);
    second = File();
    EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace penstock::aio
