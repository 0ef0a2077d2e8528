#include "swap/directory/recovery.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/store_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace penstock::store {
namespace {

using Copies = std::array<ManifestCopy, 2>;

using State = ManifestCopy::State;

void set_both(Copies& copies, State state, const std::string& problem) {
    for (ManifestCopy& copy : copies) {
        copy.state = state;
        copy.problem = problem;
    }
}

// Returns 0 or the errno. Behind the file's end are zeros.
int read_all(int fd, std::span<std::byte> bytes, std::uint64_t offset_bytes) {
    while (!bytes.empty()) {
        const ssize_t got = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset_bytes));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) {
            std::fill(bytes.begin(), bytes.end(), std::byte{0});
            return 0;
        }
        bytes = bytes.subspan(static_cast<std::size_t>(got));
        offset_bytes += static_cast<std::uint64_t>(got);
    }
    return 0;
}

// Of two lives that reached the same generation the later one's counts.
std::pair<std::uint64_t, std::uint64_t> recency(const Manifest& manifest) {
    return {manifest.generation, manifest.incarnation};
}

void consider(Recovery& recovery, Manifest&& manifest) {
    std::optional<Manifest>& newest = recovery.newest;
    std::optional<Manifest>& previous = recovery.previous;
    if (!newest || recency(manifest) > recency(*newest)) {
        if (newest && newest->generation != manifest.generation) previous = std::move(newest);
        newest = std::move(manifest);
    } else if (manifest.generation != newest->generation && (!previous || recency(manifest) > recency(*previous))) {
        previous = std::move(manifest);
    }
}

// Another life's or another shape's generation is none to go back to.
bool precedes(const Manifest& previous, const Manifest& newest) {
    return previous.generation + 1 == newest.generation && previous.incarnation <= newest.incarnation &&
           previous.objects == newest.objects && previous.geometry == newest.geometry;
}

// `file` is the number of the file that the place is in.
void judge(ManifestCopy& copy, std::span<const std::byte> place, std::size_t file, const StoreUuid& store,
           Recovery& recovery) {
    if (std::all_of(place.begin(), place.end(), [](std::byte value) { return value == std::byte{0}; })) {
        copy.state = State::blank;
        return;
    }
    DecodedManifest decoded = decode(place);
    Manifest& manifest = decoded.manifest;
    if (decoded.valid) copy.store = manifest.store;
    if (decoded.valid && manifest.store != store) {
        decoded.valid = false;
        decoded.problem = fmt::format("it is of store {}", to_string(manifest.store));
    }
    if (decoded.valid && manifest_capacity(Layout(manifest.objects, manifest.geometry)) != place.size()) {
        decoded.valid = false;
        decoded.problem = "the file's length is not that of its manifests";
    }
    // A commit overwrites the other file's, so one that lay here by itself would come back later.
    if (decoded.valid && manifest.generation % manifest_file_names.size() != file) {
        decoded.valid = false;
        decoded.problem = fmt::format("it is of generation {}, which belongs into {}", manifest.generation,
                                      manifest_file_names[manifest.generation % manifest_file_names.size()]);
    }
    copy.state = decoded.valid ? State::whole : State::broken;
    copy.problem = std::move(decoded.problem);
    if (!decoded.valid) return;
    copy.generation = manifest.generation;
    consider(recovery, std::move(manifest));
}

// Each lies in a place of its own, one after the other. What of a place is behind the file's end is zeros.
void read_copies(int fd, std::size_t number, std::uint64_t place_bytes, const StoreUuid& store, Recovery& recovery) {
    Copies& copies = recovery.copies[number];
    std::vector<std::byte> place(place_bytes);
    for (std::size_t i = 0; i < copies.size(); ++i) {
        copies[i].offset_bytes = i * place_bytes;
        if (const int error = read_all(fd, place, copies[i].offset_bytes); error != 0) {
            copies[i].state = State::unread;
            copies[i].problem = fmt::format("it cannot be read: {}", aio::errno_text(error));
        } else {
            judge(copies[i], place, number, store, recovery);
        }
    }
}

// What a file holds whose length is not that of its manifests says itself: the first copy lies at its beginning, and
// its objects say where the second one is. 0: that copy is not right.
std::uint64_t place_bytes_of(int fd, std::uint64_t file_bytes, const StoreUuid& store) {
    std::vector<std::byte> file(file_bytes);
    if (read_all(fd, file, 0) != 0) return 0;
    const DecodedManifest decoded = decode(file);
    if (!decoded.valid || decoded.manifest.store != store) return 0;
    return manifest_capacity(Layout(decoded.manifest.objects, decoded.manifest.geometry));
}

void read_file(int directory_fd, std::size_t number, const StoreUuid& store, Recovery& recovery) {
    Copies& copies = recovery.copies[number];
    const Descriptor file(
        ::openat(directory_fd, manifest_file_names[number], O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
    if (!file) {
        if (errno != ENOENT)
            set_both(copies, State::unread, fmt::format("it cannot be opened: {}", aio::errno_text(errno)));
        return;
    }
    struct stat status {};
    if (::fstat(file.get(), &status) != 0)
        return set_both(copies, State::unread, fmt::format("it cannot be examined: {}", aio::errno_text(errno)));
    const auto file_bytes = static_cast<std::uint64_t>(status.st_size);
    if (!S_ISREG(status.st_mode)) return set_both(copies, State::unread, "it is no regular file");
    if (file_bytes > max_manifest_file_bytes)
        return set_both(copies, State::broken, "it is longer than any manifest file of a store");
    read_copies(file.get(), number, file_bytes / 2, store, recovery);
    const auto is = [&copies](State state) {
        return std::any_of(copies.begin(), copies.end(),
                           [state](const ManifestCopy& copy) { return copy.state == state; });
    };
    if (is(State::whole) || is(State::unread) || !is(State::broken)) return;
    // It was cut, or grew: a copy that is whole counts all the same.
    const std::uint64_t place_bytes = place_bytes_of(file.get(), file_bytes, store);
    if (place_bytes == 0 || place_bytes == file_bytes / 2) return;
    copies = {};
    read_copies(file.get(), number, place_bytes, store, recovery);
}

// Whoever writes to a manifest holds it, and so does a request of an ended process that may still land
// (swap/directory/file_hold.h). Asked before they are read; what cannot be asked is not settled.
bool is_settled(int directory_fd) {
    return std::all_of(manifest_file_names.begin(), manifest_file_names.end(), [&](const char* name) {
        const Descriptor file(::openat(directory_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
        return file && ::flock(file.get(), LOCK_SH | LOCK_NB) == 0;
    });
}

}  // namespace

Recovery recover(int directory_fd, const StoreUuid& store) {
    Recovery recovery;
    for (std::size_t file = 0; file < recovery.copies.size(); ++file) {
        read_file(directory_fd, file, store, recovery);
    }
    if (recovery.previous && !precedes(*recovery.previous, *recovery.newest)) recovery.previous.reset();
    return recovery;
}

std::vector<StoreUuid> stores_of_manifests(int directory_fd) {
    std::vector<StoreUuid> stores;
    const Recovery seen = recover(directory_fd, StoreUuid{});
    for (const Copies& file : seen.copies) {
        for (const ManifestCopy& copy : file) {
            if (copy.store && std::find(stores.begin(), stores.end(), *copy.store) == stores.end())
                stores.push_back(*copy.store);
        }
    }
    return stores;
}

Recovery recover(const StoreDirectory& directory) {
    const bool settled = is_settled(directory.fd());
    Recovery recovery = recover(directory.fd(), directory.uuid());
    recovery.settled = settled && !recovery.unread();  // what was not read may be read later
    return recovery;
}

void Recovery::use_previous() {
    PENSTOCK_CHECK(newest && previous, "there is no generation to go back to");
    for (auto& file : copies) {
        for (ManifestCopy& copy : file) {
            if (copy.state == State::whole && copy.generation == newest->generation) copy.state = State::disproved;
        }
    }
    newest = std::exchange(previous, std::nullopt);
}

// The first commit of all writes copy 1 in manifest.0 before anything else is written, and copy 2 only when copy 1 is
// on disk. So unless that one copy alone is broken, something was committed here and is damaged now.
bool Recovery::never_committed() const noexcept {
    const auto empty = [](const ManifestCopy& copy) {
        return copy.state == State::missing || copy.state == State::blank;
    };
    return !newest && empty(copies[0][1]) && empty(copies[1][0]) && empty(copies[1][1]);
}

bool Recovery::unread() const noexcept {
    const auto is_unread = [](const ManifestCopy& copy) { return copy.state == State::unread; };
    return std::any_of(copies.begin(), copies.end(),
                       [&](const auto& file) { return std::any_of(file.begin(), file.end(), is_unread); });
}

std::vector<std::string> Recovery::hidden(const std::string& directory_path) const {
    std::vector<std::string> lines;
    for (std::size_t file = 0; file < copies.size(); ++file) {
        const auto& [first, second] = copies[file];
        const bool unread = first.state == State::unread || second.state == State::unread;
        if (unread && first.no_good() && second.no_good()) add_problems(file, directory_path, lines);
    }
    return lines;
}

// After the commit of g, the file of g-1 holds it until the first copy of g+1 is begun there, and its second copy until
// that one is whole.
bool Recovery::doubtful() const noexcept {
    if (!newest || newest->generation == 0) return false;
    const Copies& before = copies[(newest->generation - 1) % copies.size()];
    return std::none_of(before.begin(), before.end(), [&](const ManifestCopy& copy) {
        return copy.state == State::whole && copy.generation + 1 == newest->generation;
    });
}

void Recovery::add_problems(std::size_t file, const std::string& directory_path,
                            std::vector<std::string>& lines) const {
    for (std::size_t i = 0; i < copies[file].size(); ++i) {
        const ManifestCopy& copy = copies[file][i];
        if (!copy.no_good()) continue;
        lines.push_back(fmt::format("{}/{} at offset {}: copy {} of the manifest {}: {}", directory_path,
                                    manifest_file_names[file], copy.offset_bytes, i + 1,
                                    copy.state == State::broken ? "is unfinished or damaged" : "could not be read",
                                    copy.problem));
    }
}

std::vector<std::string> Recovery::problems(const std::string& directory_path) const {
    std::vector<std::string> lines;
    for (std::size_t file = 0; file < copies.size(); ++file) add_problems(file, directory_path, lines);
    return lines;
}

}  // namespace penstock::store
