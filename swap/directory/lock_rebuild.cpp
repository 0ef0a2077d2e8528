#include "swap/directory/lock_rebuild.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/recovery.h"
#include "swap/directory/store_directory.h"
#include "swap/format/lock_text.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <utility>

namespace penstock::store {
namespace {

constexpr auto lock_name = StoreDirectory::lock_name;
constexpr auto damaged_name = "lock.damaged";

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
    throw Error(ExitCode::storage, fmt::format("{}: {}; nothing was changed.", path, problem));
}

[[noreturn]] void fail_errno(const std::string& path, const char* action, int errno_value) {
    throw Error(ExitCode::storage, fmt::format("{}: the lock cannot be {}: {}; check the device and the permissions.",
                                               path, action, aio::errno_text(errno_value)));
}

// One of the store's directories, with what its lock says, if that can be read.
struct Place {
    std::string path;
    Descriptor directory;
    std::optional<LockText> lock;
};

// Nothing: it is lost. An error of the system says nothing about the lock.
std::optional<LockText> read_lock(const Place& place) {
    const Descriptor file(::openat(place.directory.get(), lock_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file && (errno == ENOENT || errno == ELOOP || errno == EISDIR || errno == ENXIO)) return std::nullopt;
    if (!file) fail_errno(place.path, "opened", errno);
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) fail_errno(place.path, "examined", errno);
    if (!S_ISREG(status.st_mode)) return std::nullopt;
    std::array<char, lock_file_bytes> text{};
    const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
    if (got < 0) fail_errno(place.path, "read", errno);
    auto lock = parse_lock_file({text.data(), static_cast<std::size_t>(got)});
    if (!lock && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
        fail(place.path, "a running process holds the damaged lock; stop it first");
    return lock;
}

Place look(const std::string& path) {
    Place place{
        .path = path, .directory = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), .lock = {}};
    if (!place.directory) {
        throw Error(ExitCode::storage, fmt::format("{}: the store directory cannot be opened: {}; check the path.",
                                                   path, aio::errno_text(errno)));
    }
    place.lock = read_lock(place);
    return place;
}

// Whose the manifests in the directory are; nothing when no copy is right in itself.
std::optional<StoreUuid> store_of_manifests(const Place& first) {
    const std::vector<StoreUuid> stores = stores_of_manifests(first.directory.get());
    if (stores.size() > 1)
        fail(first.path, fmt::format("its manifests are of two stores, {} and {}: take out the one that does "
                                     "not belong there",
                                     to_string(stores[0]), to_string(stores[1])));
    return stores.empty() ? std::nullopt : std::optional(stores.front());
}

// What is there goes aside, so that the new file can be made in one piece under its name.
void write_lock(const Place& place, const LockText& lock) {
    if (::renameat(place.directory.get(), lock_name, place.directory.get(), damaged_name) != 0 && errno != ENOENT)
        fail_errno(place.path, "renamed", errno);
    const Descriptor file(
        ::openat(place.directory.get(), lock_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) fail_errno(place.path, "made", errno);
    const aio::NoSizeSignal quiet;
    const std::string text = lock_file(lock);
    const ssize_t put = ::pwrite(file.get(), text.data(), text.size(), 0);
    if (put != static_cast<ssize_t>(text.size())) fail_errno(place.path, "written", put < 0 ? errno : ENOSPC);
    if (::fdatasync(file.get()) != 0 || ::fsync(place.directory.get()) != 0)
        fail_errno(place.path, "made durable", errno);
}

}  // namespace

std::vector<std::string> rebuild_locks(const std::vector<std::string>& paths, const std::string& job) {
    check_job(job);
    std::vector<Place> places;
    for (const std::string& path : paths) places.push_back(look(path));
    const auto is_lost = [](const Place& place) { return !place.lock.has_value(); };
    if (std::none_of(places.begin(), places.end(), is_lost)) return {};
    const Place& first = places.front();
    const auto store = first.lock ? std::optional(first.lock->uuid) : store_of_manifests(first);
    if (!store) return {};
    const Recovery recovery = recover(first.directory.get(), *store);
    if (!recovery.newest) return {};
    const std::uint32_t devices = recovery.newest->geometry.device_count();
    if (devices != places.size())
        throw Error(ExitCode::usage, fmt::format("{}: the store lies on {} devices, but {} directories are given; give "
                                                 "all of them, in the order of its creation",
                                                 first.path, devices, places.size()));
    std::vector<std::string> lines;
    for (std::uint32_t i = 0; i < devices; ++i) {
        if (places[i].lock) continue;
        const LockText lock{.job = first.lock ? first.lock->job : job,
                            .uuid = i == 0 ? *store : draw_uuid(places[i].path),
                            .role = DeviceRole{.store = *store, .device = i, .device_count = devices},
                            .pid = ::getpid(),
                            .host = "-",
                            .since = "-"};
        write_lock(places[i], lock);
        lines.push_back(fmt::format("{}/{} was lost and is made anew: device {} of {} of store {}, job '{}'",
                                    places[i].path, lock_name, i, devices, to_string(*store), lock.job));
    }
    return lines;
}

}  // namespace penstock::store
