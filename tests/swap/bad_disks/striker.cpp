#include "tests/swap/bad_disks/striker.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/recovery.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

namespace penstock::testing {
namespace {

// Manifests are the files that are written synchronously.
bool is_manifest(int fd) {
    return (::fcntl(fd, F_GETFL) & O_DSYNC) != 0;
}

// No retry may hide it. (A flush moves no bytes.)
bool is_error(Blow blow, aio::IoKind kind) {
    return blow == Blow::io_error || blow == Blow::no_space || blow == Blow::torn ||
           (blow == Blow::no_bytes && kind != aio::IoKind::flush);
}

bool is_lie(Blow blow) {
    return blow == Blow::lost || blow == Blow::flipped || blow == Blow::misdirected;
}

std::string path_of(int fd) {
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
}

// Through a descriptor of its own: what lands need not be what a direct file takes.
std::int32_t write_at(const std::string& path, const std::byte* data, std::size_t bytes, std::uint64_t offset_bytes) {
    const store::Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    const ssize_t put = ::pwrite(file.get(), data, bytes, static_cast<off_t>(offset_bytes));
    PENSTOCK_CHECK(put == static_cast<ssize_t>(bytes), "pwrite gives {}", put);
    return static_cast<std::int32_t>(bytes);
}

}  // namespace

std::optional<StruckBackend::Strike> Striker::operator()(aio::Attempt& attempt) {
    using Strike = StruckBackend::Strike;
    const bool struck = is_target(attempt) && static_cast<int>(random_() % 100) < disk_.percent;
    if (disk_.target == Target::flushes) remember(attempt, struck);
    if (!struck) return std::nullopt;
    const bool lie = is_lie(disk_.blow);
    if (lie && std::exchange(lied_, true)) return std::nullopt;
    ++faults_;
    if (is_error(disk_.blow, attempt.kind)) ++errors_;
    if (attempt.kind == aio::IoKind::flush) lose_a_write();
    switch (disk_.blow) {
        case Blow::none:
            break;
        case Blow::io_error:
            return Strike{.result = -EIO};
        case Blow::no_space:
            return Strike{.result = -ENOSPC};
        case Blow::no_bytes:
            return Strike{.result = 0};
        case Blow::slow:
            return Strike{.delay = std::chrono::seconds(1 + random_() % 60)};
        case Blow::stuck:
            return Strike{.delay = StruckBackend::forever};
        case Blow::torn:
        case Blow::lost:
        case Blow::flipped:
        case Blow::misdirected:
            return Strike{.result = land(attempt)};
    }
    return std::nullopt;
}

bool Striker::is_target(const aio::Attempt& attempt) const {
    const bool manifest = is_manifest(attempt.fd);
    switch (disk_.target) {
        case Target::reads:
            return attempt.kind == aio::IoKind::read && !manifest;
        case Target::writes:
            return attempt.kind == aio::IoKind::write && !manifest;
        case Target::flushes:
            return attempt.kind == aio::IoKind::flush;
        case Target::manifest_writes:
            return attempt.kind == aio::IoKind::write && manifest;
        case Target::all:
            return !manifest || attempt.kind != aio::IoKind::read;  // such a read carries a refusal
    }
    return false;
}

void Striker::remember(const aio::Attempt& attempt, bool struck) {
    if (attempt.kind == aio::IoKind::flush && !struck)
        std::erase_if(unflushed_, [&](const Write& write) { return write.path == path_of(attempt.fd); });
    if (attempt.kind != aio::IoKind::write || is_manifest(attempt.fd)) return;
    Write& write = unflushed_.emplace_back();
    write.path = path_of(attempt.fd);
    write.offset_bytes = attempt.offset_bytes;
    write.before.resize(attempt.bytes);
    const store::Descriptor file(::open(write.path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t got =
        ::pread(file.get(), write.before.data(), write.before.size(), static_cast<off_t>(write.offset_bytes));
    PENSTOCK_CHECK(got == static_cast<ssize_t>(attempt.bytes), "pread gives {}", got);
}

void Striker::lose_a_write() {
    if (unflushed_.empty()) return;
    const Write& write = unflushed_[random_() % unflushed_.size()];
    write_at(write.path, write.before.data(), write.before.size(), write.offset_bytes);
    unflushed_.clear();
}

// What of a write reaches the disk, and what the disk says.
std::int32_t Striker::land(aio::Attempt& attempt) {
    if (disk_.blow == Blow::lost) return static_cast<std::int32_t>(attempt.bytes);
    if (disk_.blow == Blow::misdirected) return misdirect(attempt);
    const std::string path = path_of(attempt.fd);
    if (disk_.blow == Blow::torn) {
        const std::uint32_t sectors = attempt.bytes / 512;
        write_at(path, attempt.data, std::size_t{512} * (1 + random_() % (sectors - 1)), attempt.offset_bytes);
        return -EIO;
    }
    std::vector<std::byte> copy(attempt.data, attempt.data + attempt.bytes);
    const std::uint64_t bit = random_() % (attempt.bytes * std::uint64_t{8});
    copy[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    return write_at(path, copy.data(), copy.size(), attempt.offset_bytes);
}

std::int32_t Striker::misdirect(aio::Attempt& attempt) {
    std::vector<std::string> files;
    for (const std::string& directory : directories_) files.push_back(directory + "/" + store::data_file_name);
    for (const char* name : store::manifest_file_names) files.push_back(directories_.front() + "/" + name);
    const std::string& path = files[random_() % files.size()];
    const std::uint64_t file_bytes = std::filesystem::file_size(path);
    // A manifest that goes astray is likely to land where a manifest belongs.
    const bool among_manifests = is_manifest(attempt.fd) && path.find("manifest") != std::string::npos;
    const std::uint64_t step = among_manifests ? file_bytes / 2 : std::uint64_t{4096};
    const std::uint64_t places = (file_bytes - attempt.bytes) / step + 1;
    std::uint64_t offset = random_() % places * step;
    if (path == path_of(attempt.fd) && offset == attempt.offset_bytes) offset = (offset / step + 1) % places * step;
    return write_at(path, attempt.data, attempt.bytes, offset);
}

}  // namespace penstock::testing
