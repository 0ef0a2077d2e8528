#include "swap/directory/snapshot_list.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/directory_names.h"
#include "swap/directory/held_files.h"
#include "swap/directory/recovery.h"
#include "swap/directory/store_directory.h"
#include "swap/directory/store_look.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace penstock::store {
namespace {

// The manifests first: what is left then, should this be interrupted, is an unfinished store that can be removed again,
// or, at the very end, an empty directory, which any new snapshot of that name takes.
constexpr std::array own_files = {manifest_file_names[0], manifest_file_names[1], data_file_name,
                                  StoreDirectory::lock_name};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
    throw Error(ExitCode::storage, fmt::format("{}: {}", path, what));
}

[[noreturn]] void fail_errno(const std::string& path, const char* action, int errno_value) {
    fail(path, fmt::format("{}: {}; check the path and the permissions.", action, aio::errno_text(errno_value)));
}

std::vector<std::string> names_in(int directory_fd, const std::string& path) {
    std::vector<std::string> names;
    if (const int error = list_names(directory_fd, names)) fail_errno(path, "it cannot be listed", error);
    return names;
}

std::uint64_t disk_bytes(int directory_fd, const std::string& path) {
    std::uint64_t bytes = 0;
    for (const char* name : own_files) {
        struct stat status {};
        if (::fstatat(directory_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0)
            bytes += static_cast<std::uint64_t>(status.st_blocks) * 512;
        else if (errno != ENOENT)
            fail_errno(path + "/" + name, "it cannot be examined", errno);
    }
    return bytes;
}

std::string describe_problems(const StoreLook& look) {
    const bool unread = look.recovery.unread();
    return fmt::format("{}: {}{}", unread ? "not readable" : "damaged", fmt::join(look.problems(), "; "),
                       unread ? "; try again, or check the drive (dmesg)" : "");
}

// Nothing when it is another kind of store, or none.
std::optional<ListedSnapshot> look_for_snapshot(int folder_fd, const std::string& folder, const std::string& name) {
    const Descriptor directory(::openat(folder_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return std::nullopt;
    if (!directory) fail_errno(folder + "/" + name, "it cannot be opened", errno);
    std::optional<StoreLook> look = look_at_store(directory.get(), folder + "/" + name);
    if (!look || (look->lock.role && look->lock.role->device_count != 1)) return std::nullopt;
    Recovery& recovery = look->recovery;
    if (recovery.newest && !recovery.newest->origin) return std::nullopt;
    ListedSnapshot snapshot{.name = name,
                            .path = look->path,
                            .job = look->lock.job,
                            .manifest = std::move(recovery.newest),
                            .problem = {},
                            .disk_bytes = disk_bytes(directory.get(), look->path)};
    if (snapshot.manifest) return snapshot;
    snapshot.unfinished = recovery.never_committed();
    snapshot.problem =
        snapshot.unfinished ? "unfinished: the copy was interrupted, or is under way" : describe_problems(*look);
    return snapshot;
}

// What cannot be looked at is listed, too: it may be one.
std::optional<ListedSnapshot> list_one(int folder_fd, const std::string& folder, const std::string& name) {
    try {
        return look_for_snapshot(folder_fd, folder, name);
    } catch (const Error& error) {
        return ListedSnapshot{
            .name = name, .path = folder + "/" + name, .manifest = {}, .problem = error.what(), .disk_bytes = 0};
    }
}

// What is wrong with removing it, or nothing.
std::string why_not_removed(const StoreDirectory& directory) {
    const std::optional<DeviceRole>& role = directory.role();
    if (role && role->device_count != 1) {
        return fmt::format("it is device {} of {} of a store, not a kept snapshot; nothing was removed.", role->device,
                           role->device_count);
    }
    const Recovery recovery = recover(directory);
    if (recovery.newest && !recovery.newest->origin)
        return "it is a store that trainings go on in, not a kept snapshot; nothing was removed. Remove the directory "
               "by hand if you mean it.";
    if (!recovery.newest && recovery.unread())
        return fmt::format(
            "its manifests cannot be read ({}), so nobody can tell whether it is a kept snapshot; nothing was removed. "
            "Try again, or check the drive (dmesg).",
            fmt::join(recovery.problems(directory.path()), "; "));
    if (!recovery.newest && !recovery.never_committed())
        return fmt::format(
            "its manifests are damaged ({}), so nobody can tell whether it is a kept snapshot; nothing "
            "was removed. Remove the directory by hand if you mean it.",
            fmt::join(recovery.problems(directory.path()), "; "));
    for (const std::string& name : names_in(directory.fd(), directory.path())) {
        struct stat status {};
        const bool known = std::find(own_files.begin(), own_files.end(), name) != own_files.end();
        if (known && ::fstatat(directory.fd(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
            fail_errno(directory.path() + "/" + name, "it cannot be examined, so nothing was removed", errno);
        if (!known || !S_ISREG(status.st_mode))
            return fmt::format("'{}' in it is not a store's; nothing was removed. Move it elsewhere first.", name);
    }
    return {};
}

}  // namespace

bool is_snapshot_name(const std::string& name) noexcept {
    constexpr std::size_t longest = 100;
    if (name.empty() || name.size() > longest || name.front() == '.') return false;
    return std::all_of(name.begin(), name.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
               c == '-';
    });
}

std::vector<ListedSnapshot> list_snapshots(const std::string& folder) {
    const Descriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd && errno == ENOENT) return {};
    if (!fd) fail_errno(folder, "the folder of kept snapshots cannot be opened", errno);
    std::vector<ListedSnapshot> snapshots;
    for (const std::string& name : names_in(fd.get(), folder)) {
        if (!is_snapshot_name(name)) continue;
        if (auto snapshot = list_one(fd.get(), folder, name)) snapshots.push_back(std::move(*snapshot));
    }
    const auto time = [](const ListedSnapshot& snapshot) {  // what has none comes last
        return snapshot.manifest ? snapshot.manifest->time_s : std::numeric_limits<std::uint64_t>::max();
    };
    std::stable_sort(snapshots.begin(), snapshots.end(),
                     [&](const ListedSnapshot& a, const ListedSnapshot& b) { return time(a) < time(b); });
    return snapshots;
}

void remove_snapshot(const std::string& path, std::chrono::nanoseconds patience, const WaitNotice& notice) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) fail_errno(path, "the snapshot cannot be found", errno);
    if (!S_ISDIR(status.st_mode)) fail(path, "it is not a directory (links are not followed); nothing was removed.");
    const StoreDirectory directory = StoreDirectory::find(path, Sharing::exclusive);
    // The lock is.
    const HeldFiles held(directory, std::span(own_files).first(own_files.size() - 1), patience, notice);
    if (const std::string reason = why_not_removed(directory); !reason.empty()) fail(path, reason);
    for (const char* name : own_files) {
        if (::unlinkat(directory.fd(), name, 0) != 0 && errno != ENOENT)
            fail_errno(path + "/" + name, "it cannot be removed", errno);
        // No power cut may leave a manifest without the data that it names.
        if (name == manifest_file_names[1]) directory.sync();
    }
    if (::rmdir(path.c_str()) != 0) fail_errno(path, "the emptied directory cannot be removed", errno);
}

bool is_copy_of(const ListedSnapshot& snapshot, const StoreUuid& of) noexcept {
    return snapshot.manifest && snapshot.manifest->origin && snapshot.manifest->origin->store == of;
}

}  // namespace penstock::store
