#include "bench/harness/bench_file.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace penstock::bench {
namespace {

constexpr std::uint64_t left_to_others_bytes = 256ULL << 20;
constexpr std::string_view prefix = "penstock-bench-";
constexpr std::string_view suffix = ".tmp";

struct statfs file_system(const std::string& directory) {
    struct statfs status = {};
    if (::statfs(directory.c_str(), &status) != 0) {
        throw Error(ExitCode::usage, fmt::format("--dir {}: {}; name an existing directory on the device to measure",
                                                 directory, aio::errno_text(errno)));
    }
    return status;
}

std::string temporary(const std::string& directory, const std::string& what) {
    return fmt::format("{}/{}{}-{}{}", directory, prefix, ::getpid(), what, suffix);
}

// The process that a temporary file's name tells, when it is one and that process is gone.
bool left_behind(const std::string& name) {
    if (!name.starts_with(prefix) || !name.ends_with(suffix)) return false;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), pid);
    return error == std::errc{} && *end == '-' && pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::uint64_t free_space_bytes(const std::string& directory) {
    const struct statfs status = file_system(directory);
    return static_cast<std::uint64_t>(status.f_bavail) * static_cast<std::uint64_t>(status.f_bsize);
}

std::vector<std::string> check_bench_directory(const std::string& directory, std::uint64_t needed_bytes) {
    const struct statfs status = file_system(directory);
    std::error_code error;
    if (!std::filesystem::is_directory(directory, error)) {
        throw Error(ExitCode::usage,
                    fmt::format("--dir {}: it is no directory; name one on the device to measure", directory));
    }
    if (::access(directory.c_str(), W_OK | X_OK) != 0) {
        throw Error(ExitCode::usage, fmt::format("--dir {}: {}; name a directory that this user may write to",
                                                 directory, aio::errno_text(errno)));
    }
    const std::uint64_t free = free_space_bytes(directory);
    if (free < needed_bytes + left_to_others_bytes) {
        throw Error(
            ExitCode::does_not_fit,
            fmt::format("--dir {}: the temporary files need {} MiB and {} MiB are to stay free, but there are {} "
                        "MiB; free some space, choose another directory, or give a smaller --size",
                        directory, needed_bytes >> 20, left_to_others_bytes >> 20, free >> 20));
    }
    std::vector<std::string> notes;
    if (status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC) {
        notes.push_back(
            fmt::format("{} is a file system in memory: these figures say nothing about a drive", directory));
    }
    for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
        if (!left_behind(entry.path().filename().string())) continue;
        notes.push_back(fmt::format("{} was left by a run that was killed; remove it", entry.path().string()));
    }
    return notes;
}

std::string file_system_of(const std::string& directory) {
    const std::string path = std::filesystem::canonical(directory).string();
    std::ifstream mounts("/proc/self/mounts");
    std::string best_point, found = "unknown file system";
    for (std::string line; std::getline(mounts, line);) {
        std::istringstream words(line);
        std::string device, point, type;
        words >> device >> point >> type;
        const bool holds = point == "/" || path == point || path.starts_with(point + "/");
        if (!holds || point.size() < best_point.size()) continue;
        best_point = point;
        found = fmt::format("{} on {}", type, device);
    }
    return found;
}

BenchFile::Made::Made(std::string its_path) : path(std::move(its_path)) {
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        throw Error(ExitCode::storage,
                    fmt::format("cannot create {}: {}; choose another --dir", path, aio::errno_text(errno)));
    }
    ::close(fd);
}

BenchFile::Made::~Made() {
    ::unlink(path.c_str());
}

BenchFile::BenchFile(const std::string& directory, const std::string& what, std::uint64_t bytes)
    : made_(temporary(directory, what)), bytes_(bytes), file_(AT_FDCWD, made_.path, made_.path, {}) {
    file_.reserve(bytes);
}

BenchFolder::BenchFolder(const std::string& directory, const std::string& what) : path_(temporary(directory, what)) {
    if (::mkdir(path_.c_str(), 0700) == 0) return;
    throw Error(ExitCode::storage, fmt::format("{} cannot be made: {}; name a directory on the device to measure in "
                                               "which this user may write.",
                                               path_, aio::errno_text(errno)));
}

BenchFolder::~BenchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

}  // namespace penstock::bench
