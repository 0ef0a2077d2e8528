#include "aio/file.h"

#include "aio/direct_probe.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <limits>
#include <utility>

namespace penstock::aio {

namespace {

const char* remedy(int errno_value) {
    switch (errno_value) {
        case ELOOP:
            return "symbolic links are not followed here; name the file itself";
        case ENOENT:
            return "check that the path exists";
        case EEXIST:
            return "it must not exist yet; choose another place or remove it";
        case EACCES:
        case EPERM:
            return "check the owner and the mode of the file and of its directories";
        case EROFS:
            return "choose a directory on a writable file system";
        case EMFILE:
            return "raise the limit on open files (ulimit -n)";
        case EFBIG:
            return "raise the limit on file sizes (ulimit -f), or choose a file system that allows files that long";
        default:
            return "check the path and the device";
    }
}

[[noreturn]] void fail(const char* what, const std::string& path, int errno_value) {
    throw Error(ExitCode::storage,
                fmt::format("{} {}: {}; {}.", what, path, errno_text(errno_value), remedy(errno_value)));
}

int open_flags(const FileOptions& options) {
    // O_NONBLOCK only for the open itself, so that a pipe somebody put there cannot hang us.
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
    flags |= options.mode == FileMode::read_only ? O_RDONLY : O_RDWR;
    if (options.mode == FileMode::create) flags |= O_CREAT | O_EXCL;
    if (options.sync == Sync::each_write) flags |= O_DSYNC;
    return flags;
}

int open_file(int directory_fd, const std::string& path, const std::string& shown_path, const FileOptions& options) {
    int fd = -1;
    do {
        fd = ::openat(directory_fd, path.c_str(), open_flags(options), 0600);
    } while (fd < 0 && errno == EINTR);
    if (fd < 0) fail(options.mode == FileMode::create ? "cannot create" : "cannot open", shown_path, errno);
    return fd;
}

struct stat status_of(int fd, const std::string& path) {
    struct stat status = {};
    if (::fstat(fd, &status) != 0) fail("cannot examine", path, errno);
    return status;
}

// Of the disk that holds the file.
std::uint64_t device_of(int fd, const std::string& path) {
    const struct stat status = status_of(fd, path);
    if (S_ISREG(status.st_mode)) return status.st_dev;
    if (S_ISBLK(status.st_mode)) return status.st_rdev;
    throw Error(
        ExitCode::storage,
        fmt::format("cannot open {}: it is neither a regular file nor a block device; name another file.", path));
}

// Descriptors are used again; these are not, so whoever keeps one (a registered file) can tell two files apart.
std::uint64_t next_id() noexcept {
    static std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void clear_nonblocking(int fd, const std::string& path) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (flags < 0 || ::fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) != 0) fail("cannot prepare", path, errno);
}

std::uint64_t free_bytes(int fd, const std::string& path) {
    struct statvfs status = {};
    if (::fstatvfs(fd, &status) != 0) fail("cannot ask for the free space of", path, errno);
    return static_cast<std::uint64_t>(status.f_bavail) * status.f_frsize;
}

[[noreturn]] void refuse_space(const std::string& path, std::uint64_t needed, std::uint64_t present,
                               std::uint64_t free) {
    const std::uint64_t more = needed - std::min(needed, present);
    throw Error(ExitCode::does_not_fit,
                fmt::format("cannot reserve {}: it needs {} more bytes and its file system has {} bytes free, so {} "
                            "bytes are missing; free some space or choose another directory.",
                            path, more, free, more - std::min(more, free)));
}

// By the file system, which says why not: there may be free space that a quota, or others meanwhile, have.
[[noreturn]] void refuse_reservation(const std::string& path, std::uint64_t needed, std::uint64_t present, int error) {
    throw Error(ExitCode::does_not_fit,
                fmt::format("cannot reserve {}: it needs {} more bytes: {}; {} or choose another directory.", path,
                            needed - std::min(needed, present), errno_text(error),
                            error == EDQUOT ? "ask for a larger quota, free some of it" : "free some space"));
}

}  // namespace

File::File(int directory_fd, const std::string& path, const std::string& shown_path, FileOptions options)
    : path_(shown_path) {
    // The owner is complete before anything can throw: its destructor would not run for a half-built object.
    File opened;
    opened.fd_ = open_file(directory_fd, path, shown_path, options);
    opened.prepare(shown_path, options);
    *this = std::move(opened);
}

std::optional<File> File::nameless(int directory_fd, const std::string& shown_path, Caching caching) {
    File opened;
    do {
        opened.fd_ = ::openat(directory_fd, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
    } while (opened.fd_ < 0 && errno == EINTR);
    if (opened.fd_ < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) return std::nullopt;
    if (opened.fd_ < 0) fail("cannot create", shown_path, errno);
    opened.prepare(shown_path, {.caching = caching});
    return opened;
}

// What there is to know of a file that was just opened.
void File::prepare(const std::string& shown_path, const FileOptions& options) {
    device_ = device_of(fd_, shown_path);
    id_ = next_id();
    clear_nonblocking(fd_, shown_path);
    path_ = shown_path;
    sync_ = options.sync;
    alignment_ = {1, 1};
    if (options.caching == Caching::buffered) return;
    KernelDirectCalls calls;
    DirectSupport support = enable_direct(fd_, calls);
    direct_ = support.direct;
    alignment_ = support.alignment;
    if (!direct_) fallback_ = fmt::format("{} goes through the page cache, because {}", shown_path, support.reason);
}

File::~File() {
    if (fd_ >= 0) ::close(fd_);
}

File::File(File&& other) noexcept {
    *this = std::move(other);
}

File& File::operator=(File&& other) noexcept {
    if (this == &other) return *this;
    if (fd_ >= 0) ::close(fd_);
    fd_ = std::exchange(other.fd_, -1);
    path_ = std::move(other.path_);
    direct_ = std::exchange(other.direct_, false);
    sync_ = std::exchange(other.sync_, Sync::on_flush);
    fallback_ = std::move(other.fallback_);
    alignment_ = std::exchange(other.alignment_, Alignment{});
    device_ = std::exchange(other.device_, 0);
    id_ = std::exchange(other.id_, 0);
    return *this;
}

std::uint64_t File::bytes() const {
    PENSTOCK_CHECK(fd_ >= 0, "the file is not open");
    return static_cast<std::uint64_t>(status_of(fd_, path_).st_size);
}

void File::reserve(std::uint64_t bytes) {
    PENSTOCK_CHECK(bytes > 0, "{}: nothing to reserve", path());
    reserve_range(0, bytes);
}

void File::reserve_past_end(std::uint64_t bytes) {
    const std::uint64_t end = this->bytes();
    PENSTOCK_CHECK(bytes > end, "{}: {} bytes do not reach past its end at {}", path(), bytes, end);
    reserve_range(end, bytes);
}

void File::reserve_range(std::uint64_t begin, std::uint64_t bytes) {
    PENSTOCK_CHECK(fd_ >= 0, "the file is not open");
    const struct stat before = status_of(fd_, path_);
    const std::uint64_t present = begin > 0 ? begin : static_cast<std::uint64_t>(before.st_blocks) * 512;
    const std::uint64_t free = free_bytes(fd_, path_);
    // Asked first, because a refused fallocate may have filled the disk for everybody else meanwhile.
    PENSTOCK_CHECK(bytes <= std::numeric_limits<std::int64_t>::max(), "{}: {} bytes are no file length", path(), bytes);
    if (bytes - std::min(bytes, present) > free) refuse_space(path_, bytes, present, free);

    const NoSizeSignal quiet;
    int error = 0;
    do {
        error = ::fallocate(fd_, 0, static_cast<off_t>(begin), static_cast<off_t>(bytes - begin)) == 0 ? 0 : errno;
    } while (error == EINTR);
    if (error == EOPNOTSUPP || error == ENOSYS) {
        const bool long_enough = static_cast<std::uint64_t>(before.st_size) >= bytes;
        error = long_enough || ::ftruncate(fd_, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
    }
    if (error == 0) return;
    if (::ftruncate(fd_, before.st_size) != 0) fail("cannot give back the space of", path_, errno);
    if (error != ENOSPC && error != EDQUOT) fail("cannot reserve space for", path_, error);
    const std::uint64_t free_now = free_bytes(fd_, path_);
    if (error == ENOSPC && bytes - std::min(bytes, present) > free_now) refuse_space(path_, bytes, present, free_now);
    refuse_reservation(path_, bytes, present, error);
}

}  // namespace penstock::aio
