#include "swap/directory/lock_rebuild.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/lock_holder.h"
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
    std::string state = "was lost";  // of a lock that is made anew
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
    return parse_lock_file({text.data(), static_cast<std::size_t>(got)});
}

// What is no regular file is nobody's.
void refuse_held(const Place& place) {
    const Descriptor file(::openat(place.directory.get(), lock_name, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (file && ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        fail(place.path, fmt::format("a running process holds the lock that is to be made anew: {}; stop it first",
                                     describe_holders(holders_of(file.get()), std::nullopt)));
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

// Whether the bytes there have that hash. In parts: nobody vouches for what a manifest says of a tile's length.
bool has_hash(int fd, const Extent& extent, const TileIdentity& identity, const TileHash& hash) {
    std::vector<std::byte> part(1U << 20);
    TileHasher hasher;
    hasher.begin(identity);
    for (std::uint64_t done = 0; done < extent.bytes;) {
        const std::span<std::byte> next =
            std::span(part).first(std::min<std::uint64_t>(part.size(), extent.bytes - done));
        const ssize_t got = ::pread(fd, next.data(), next.size(), static_cast<off_t>(extent.offset_bytes + done));
        if (got <= 0) return false;
        hasher.add(next.first(static_cast<std::size_t>(got)));
        done += static_cast<std::uint64_t>(got);
    }
    return hasher.hash() == hash;
}

// Whether it has a tile that the manifest says is on that device: then it is that device, whatever its lock says. The
// first ones tell.
bool has_tiles_of(const Place& place, const Manifest& manifest, std::uint32_t device) {
    constexpr int tries = 16;
    const Descriptor data(
        ::openat(place.directory.get(), data_file_name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!data) return false;
    const Layout layout(manifest.objects, manifest.geometry);
    int tried = 0;
    for (std::uint32_t index = 0; index < layout.tile_count() && tried < tries; ++index) {
        const TileRecord& record = manifest.tiles[index];
        const TileId tile = layout.tile(index);
        if (!record.written || layout.extent(tile, record.slot).device != device) continue;
        const TileIdentity identity = identity_of(manifest, tile, record.generation);
        if (has_hash(data.get(), layout.extent(tile, record.slot), identity, record.hash)) return true;
        ++tried;
    }
    return false;
}

// Forgets a lock that is there and right, but of another store.
void forget_lock_of_another(Place& place, const Manifest& manifest, std::uint32_t device) {
    const bool own = place.lock && (device == 0 ? place.lock->uuid == manifest.store
                                                : place.lock->role && place.lock->role->store == manifest.store);
    if (!place.lock || own || !has_tiles_of(place, manifest, device)) return;
    const StoreUuid& another = device > 0 && place.lock->role ? place.lock->role->store : place.lock->uuid;
    place.state = fmt::format("was of store {}", to_string(another));
    place.lock.reset();
}

// The first directory's manifests: of the store that its lock says, or else of the one that they are of.
Recovery recover_first(const Place& first) {
    if (first.lock) {
        Recovery own = recover(first.directory.get(), first.lock->uuid);
        if (own.newest) return own;
    }
    const auto store = store_of_manifests(first);
    return store ? recover(first.directory.get(), *store) : Recovery();
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
    const Recovery recovery = recover_first(places.front());
    if (!recovery.newest) return {};
    const Manifest& manifest = *recovery.newest;
    const std::uint32_t devices = manifest.geometry.device_count();
    for (std::uint32_t i = 0; i < std::min<std::size_t>(devices, places.size()); ++i)
        forget_lock_of_another(places[i], manifest, i);
    const auto is_lost = [](const Place& place) { return !place.lock.has_value(); };
    if (std::none_of(places.begin(), places.end(), is_lost)) return {};
    if (devices != places.size())
        throw Error(ExitCode::usage, fmt::format("{}: the store lies on {} devices, but {} directories are given; give "
                                                 "all of them, in the order of its creation",
                                                 places.front().path, devices, places.size()));
    for (const Place& place : places) {
        if (is_lost(place)) refuse_held(place);
    }
    const std::string owner = places.front().lock ? places.front().lock->job : job;
    std::vector<std::string> lines;
    for (std::uint32_t i = 0; i < devices; ++i) {
        if (places[i].lock) continue;
        const LockText lock{.job = owner,
                            .uuid = i == 0 ? manifest.store : draw_uuid(places[i].path),
                            .role = DeviceRole{.store = manifest.store, .device = i, .device_count = devices},
                            .pid = ::getpid(),
                            .host = "-",
                            .since = "-"};
        write_lock(places[i], lock);
        lines.push_back(fmt::format("{}/{} {} and is made anew: device {} of {} of store {}, job '{}'", places[i].path,
                                    lock_name, places[i].state, i, devices, to_string(manifest.store), lock.job));
    }
    return lines;
}

}  // namespace penstock::store
