#include "swap/directory/store_files.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/recovery.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <utility>

namespace penstock::store {
namespace {

aio::File open_file(const StoreDirectory& directory, const char* name, aio::FileOptions options) {
    return aio::File(directory.fd(), name, directory.path() + "/" + name, options);
}

void hold_all(StoreFiles& files, Sharing sharing, std::chrono::nanoseconds patience, const WaitNotice& notice) {
    const auto until = std::chrono::steady_clock::now() + patience;
    for (const std::vector<aio::File>* some : {&files.data, &files.manifests}) {
        for (const aio::File& file : *some)
            files.holds.emplace_back(file, sharing, until - std::chrono::steady_clock::now(), notice);
    }
}

// Whoever may write to the directory may take the store's files away, and who owns it may let others do so.
std::string note_of_others(const StoreDirectory& directory) {
    struct stat status {};
    if (::fstat(directory.fd(), &status) != 0) return {};  // what follows says more
    if (status.st_uid != 0 && status.st_uid != ::geteuid())
        return fmt::format("{} belongs to another user ({}), who can change or remove the store.", directory.path(),
                           status.st_uid);
    if ((status.st_mode & S_IWOTH) == 0) return {};
    return fmt::format("everybody may write to {} and so remove the store (chmod o-w).", directory.path());
}

// Its own, so that they last as long as the files.
Descriptor open_again(const StoreDirectory& directory) {
    Descriptor own(::openat(directory.fd(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (own) return own;
    throw Error(ExitCode::storage, fmt::format("{} cannot be opened: {}; check the directory, and the limit on open "
                                               "files (ulimit -n).",
                                               directory.path(), aio::errno_text(errno)));
}

// What cannot be asked for is not missing; a file server says ESTALE of what is.
bool lost_its_name(const aio::File& file, const Descriptor& directory, const char* name) noexcept {
    struct stat opened {};
    struct stat named {};
    if (::fstat(file.fd(), &opened) != 0) return errno == ESTALE;
    if (opened.st_nlink == 0) return true;
    if (::fstatat(directory.get(), name, &named, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT || errno == ESTALE;
    return opened.st_dev != named.st_dev || opened.st_ino != named.st_ino;
}

template <typename ModeOf>
StoreFiles open_all(const std::vector<StoreDirectory*>& directories, aio::Caching caching, ModeOf mode_of) {
    StoreFiles files;
    files.place = std::make_unique<StoreFiles>();
    const StoreDirectory& first = *directories.front();
    bool made = false;  // a data file without manifests is never what an interrupted creation leaves
    for (const char* name : manifest_file_names) {
        const aio::FileMode mode = mode_of(first, name);
        made = made || mode == aio::FileMode::create;
        files.manifests.push_back(
            open_file(first, name, {.mode = mode, .caching = caching, .sync = aio::Sync::each_write}));
    }
    if (made) first.sync();
    for (const StoreDirectory* directory : directories) {
        files.directories.push_back(open_again(*directory));
        if (std::string note = note_of_others(*directory); !note.empty()) files.notes.push_back(std::move(note));
        const aio::FileMode mode = mode_of(*directory, data_file_name);
        const aio::File& file = files.data.emplace_back(
            open_file(*directory, data_file_name, {.mode = mode, .caching = caching, .sync = aio::Sync::on_flush}));
        if (!file.fallback().empty()) files.notes.push_back(file.fallback());
    }
    return files;
}

// Several directories may share one file system, so needs are summed per file system first.
struct Need {
    std::string path;
    std::uint64_t bytes = 0;    // not yet reserved
    std::uint64_t present = 0;  // reserved by an interrupted creation
    std::uint64_t free = 0;
};

// A file that is not there yet is made on the file system of its directory.
void add_need(std::map<dev_t, Need>& needs, const StoreDirectory& directory, const char* name, std::uint64_t bytes) {
    struct stat status {};
    struct statvfs space {};
    const bool there = ::fstatat(directory.fd(), name, &status, AT_SYMLINK_NOFOLLOW) == 0;
    if ((!there && (errno != ENOENT || ::fstat(directory.fd(), &status) != 0)) ||
        ::fstatvfs(directory.fd(), &space) != 0) {
        throw Error(ExitCode::storage, fmt::format("{}/{} cannot be examined: {}; check the device.", directory.path(),
                                                   name, aio::errno_text(errno)));
    }
    if (!there) status.st_blocks = 0;  // the directory's own
    Need& need = needs[status.st_dev];
    if (need.path.empty()) need.path = directory.path();
    need.bytes += bytes;
    need.present += std::min(static_cast<std::uint64_t>(status.st_blocks) * 512, bytes);
    need.free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
}

void check_needs(const std::map<dev_t, Need>& needs) {
    for (const auto& [device, need] : needs) {
        const std::uint64_t missing_from_disk = need.bytes - need.present;
        if (missing_from_disk <= need.free) continue;
        throw Error(ExitCode::does_not_fit,
                    fmt::format("{}: the store needs {} bytes there and {} are free, so {} bytes are missing; free "
                                "some space, choose a "
                                "directory on a larger device, or make the model smaller.",
                                need.path, missing_from_disk, need.free, missing_from_disk - need.free));
    }
}

// Of one of the files: two copies.
std::uint64_t manifest_file_bytes(const Layout& layout) {
    return 2 * manifest_capacity(layout);
}

[[noreturn]] void refuse_length(const std::string& path, std::uint64_t bytes, std::uint64_t longest) {
    throw Error(ExitCode::does_not_fit,
                fmt::format("{} takes {} bytes, but files may have at most {}: raise the limit on file sizes "
                            "(ulimit -f unlimited), or spread the store over more directories.",
                            path, bytes, longest));
}

void set_length(const aio::File& file, std::uint64_t bytes) {
    const aio::NoSizeSignal quiet;
    if (file.bytes() == bytes || ::ftruncate(file.fd(), static_cast<off_t>(bytes)) == 0) return;
    throw Error(ExitCode::storage, fmt::format("{} cannot be given its length: {}; check the device.", file.path(),
                                               aio::errno_text(errno)));
}

// Gives back what was reserved before the room ran out, so that nobody else stands before a full disk.
void reserve_or_shrink(aio::File& file, std::uint64_t bytes) {
    try {
        file.reserve(bytes);
    } catch (const Error&) {
        static_cast<void>(!::ftruncate(file.fd(), 0));
        throw;
    }
}

}  // namespace

std::uint64_t StoreFiles::granule_bytes() const {
    std::uint64_t granule = 4096;
    const auto consider = [&granule](const aio::File& file) {
        granule = std::max<std::uint64_t>({granule, file.alignment().memory_bytes, file.alignment().offset_bytes});
        if (granule > max_granule_bytes) {
            throw Error(
                ExitCode::storage,
                fmt::format("{} asks for an alignment of {} bytes; at most {} are possible. Choose another device.",
                            file.path(), granule, max_granule_bytes));
        }
    };
    for (const aio::File& file : data) consider(file);
    for (const aio::File& file : manifests) consider(file);
    return granule;
}

const aio::File* StoreFiles::removed() const noexcept {
    for (std::size_t i = 0; i < data.size(); ++i) {
        if (lost_its_name(data[i], directories[i], data_file_name)) return &data[i];
    }
    for (std::size_t i = 0; i < manifests.size(); ++i) {
        if (lost_its_name(manifests[i], directories.front(), manifest_file_names[i])) return &manifests[i];
    }
    return nullptr;
}

void StoreFiles::set_data_length(std::uint64_t bytes) const {
    for (const aio::File& file : data) set_length(file, bytes);
}

void StoreFiles::keep_for_ever() noexcept {
    if (StoreFiles* const kept = place.release()) *kept = std::move(*this);  // nobody's from now on
}

StoreFiles StoreFiles::make(const std::vector<StoreDirectory*>& directories, aio::Caching caching,
                            std::chrono::nanoseconds patience, const WaitNotice& notice) {
    StoreFiles files = open_all(directories, caching, [](const StoreDirectory& directory, const char* name) {
        return has_name(directory.fd(), directory.path(), name) ? aio::FileMode::read_write : aio::FileMode::create;
    });
    hold_all(files, Sharing::exclusive, patience, notice);
    return files;
}

StoreFiles StoreFiles::find(const std::vector<StoreDirectory*>& directories, aio::Caching caching,
                            std::chrono::nanoseconds patience, const WaitNotice& notice) {
    StoreFiles files = open_all(directories, caching, [](const StoreDirectory& directory, const char*) {
        return directory.shared() ? aio::FileMode::read_only : aio::FileMode::read_write;
    });
    hold_all(files, directories.front()->shared() ? Sharing::shared : Sharing::exclusive, patience, notice);
    return files;
}

std::uint64_t bytes_on_disk(const Layout& layout) {
    std::uint64_t bytes = manifest_file_names.size() * manifest_file_bytes(layout);
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) bytes += layout.device_bytes(device);
    return bytes;
}

void check_room(const std::vector<StoreDirectory*>& directories, const Layout& layout) {
    std::map<dev_t, Need> needs;
    const std::uint64_t longest = aio::longest_file_bytes();
    const auto add = [&](const StoreDirectory& directory, const char* name, std::uint64_t bytes) {
        if (bytes > longest) refuse_length(directory.path() + "/" + name, bytes, longest);
        add_need(needs, directory, name, bytes);
    };
    for (const char* name : manifest_file_names) add(*directories.front(), name, manifest_file_bytes(layout));
    for (std::uint32_t device = 0; device < layout.device_count(); ++device)
        add(*directories[device], data_file_name, layout.device_bytes(device));
    check_needs(needs);
}

void reserve(StoreFiles& files, const std::vector<StoreDirectory*>& directories, const Layout& layout) {
    reserve_manifests(files, directories, layout);
    reserve_data(files, layout);
}

void reserve_manifests(StoreFiles& files, const std::vector<StoreDirectory*>& directories, const Layout& layout) {
    check_room(directories, layout);
    fit_manifests(files, layout);
    for (aio::File& file : files.manifests) reserve_or_shrink(file, manifest_file_bytes(layout));
}

void reserve_data(StoreFiles& files, const Layout& layout) {
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) {
        if (layout.device_bytes(device) > 0) reserve_or_shrink(files.data[device], layout.device_bytes(device));
    }
}

void check_size_limit(const StoreFiles& files, const Layout& layout) {
    const std::uint64_t longest = aio::longest_file_bytes();
    const auto check = [longest](const aio::File& file, std::uint64_t bytes) {
        if (bytes > longest) refuse_length(file.path(), bytes, longest);
    };
    for (const aio::File& file : files.manifests) check(file, manifest_file_bytes(layout));
    for (std::uint32_t device = 0; device < layout.device_count(); ++device)
        check(files.data[device], layout.device_bytes(device));
}

void fit_manifests(const StoreFiles& files, const Layout& layout) {
    for (const aio::File& file : files.manifests) set_length(file, manifest_file_bytes(layout));
}

}  // namespace penstock::store
