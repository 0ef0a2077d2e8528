#include "trainer/data/plain_file.h"

#include "aio/words/error.h"
#include "aio/words/whole_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace penstock::trainer {
namespace {

int flags_of(PlainFile::Mode mode) {
    switch (mode) {
        case PlainFile::Mode::read:
        case PlainFile::Mode::read_ours:
            return O_RDONLY | O_CLOEXEC;
        case PlainFile::Mode::replace:
            return O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC;
        case PlainFile::Mode::read_write_create:
            return O_RDWR | O_CREAT | O_CLOEXEC;
        case PlainFile::Mode::own:
            return O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC;
    }
    return O_RDONLY;
}

[[noreturn]] void refuse_to_open(const std::string& path, PlainFile::Mode mode, const std::string& reason, bool odd) {
    const bool ours = mode == PlainFile::Mode::own || mode == PlainFile::Mode::read_write_create ||
                      mode == PlainFile::Mode::read_ours;
    throw Error(ExitCode::usage, fmt::format("cannot open {}: {}{}", path, reason,
                                             odd && ours ? "; move it away, and a new one is made" : ""));
}

}  // namespace

PlainFile::PlainFile(const std::string& path, Mode mode) : path_(path) {
    fd_ = ::open(path.c_str(), flags_of(mode) | O_NONBLOCK, 0644);  // a regular file does not care
    if (fd_ < 0) refuse_to_open(path, mode, std::strerror(errno), errno == EISDIR || errno == ELOOP || errno == ENXIO);
    struct stat status {};
    if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode)) return;
    const bool directory = S_ISDIR(status.st_mode);
    ::close(std::exchange(fd_, -1));
    refuse_to_open(path, mode, directory ? "Is a directory" : "it is a pipe or a device; a regular file is needed",
                   true);
}

PlainFile::~PlainFile() {
    if (fd_ >= 0) ::close(fd_);
}

PlainFile::PlainFile(PlainFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}

PlainFile& PlainFile::operator=(PlainFile&& other) noexcept {
    std::swap(fd_, other.fd_);
    std::swap(path_, other.path_);
    return *this;
}

void PlainFile::fail(const char* operation) const {
    throw Error(ExitCode::storage, fmt::format("{} {}: {}", operation, path_, std::strerror(errno)));
}

std::uint64_t PlainFile::bytes() const {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) fail("cannot ask the length of");
    return static_cast<std::uint64_t>(status.st_size);
}

std::size_t PlainFile::read_at(std::uint64_t offset_bytes, std::span<std::byte> out) const {
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t got = ::pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset_bytes + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) fail("cannot read");
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

void PlainFile::write_at(std::uint64_t offset_bytes, std::span<const std::byte> bytes) {
    std::size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t put =
            ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset_bytes + done));
        if (put < 0 && errno == EINTR) continue;
        if (put == 0) errno = ENOSPC;
        if (put <= 0) fail("cannot write");
        done += static_cast<std::size_t>(put);
    }
}

void PlainFile::truncate(std::uint64_t bytes) {
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) fail("cannot cut");
}

void PlainFile::sync() {
    if (::fsync(fd_) != 0) fail("cannot sync");
}

bool PlainFile::try_lock() {
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EWOULDBLOCK) return false;
    if (errno == ENOLCK || errno == ENOSYS || errno == EOPNOTSUPP) return true;
    fail("cannot lock");
}

bool PlainFile::has_its_name() const noexcept {
    struct stat here {};
    struct stat named {};
    return ::fstat(fd_, &here) == 0 && ::lstat(path_.c_str(), &named) == 0 && here.st_dev == named.st_dev &&
           here.st_ino == named.st_ino;
}

void rename_durably(const std::string& from, const std::string& to) {
    if (std::rename(from.c_str(), to.c_str()) != 0) {
        const bool in_the_way = errno == EISDIR || errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR;
        throw Error(ExitCode::storage,
                    fmt::format("cannot rename {} to {}: {}{}", from, to, std::strerror(errno),
                                in_the_way ? fmt::format("; move {} away, then run again", to) : ""));
    }
    if (const int reason = aio::sync_name(to); reason != 0)
        throw Error(ExitCode::storage, fmt::format("cannot sync the directory of {}: {}", to, std::strerror(reason)));
}

}  // namespace penstock::trainer
