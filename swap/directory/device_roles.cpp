#include "swap/directory/device_roles.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace penstock::store {
namespace {

std::string describe(const std::optional<DeviceRole>& role) {
    if (!role) return "of no store yet";
    return fmt::format("device {} of {} of store {}", role->device, role->device_count, to_string(role->store));
}

}  // namespace

void check_directories(const Directories& directories) {
    PENSTOCK_CHECK(!directories.empty() && directories.size() <= max_device_count, "{} directories",
                   directories.size());
    for (const StoreDirectory* directory : directories) PENSTOCK_CHECK(directory != nullptr, "a directory is null");
}

DeviceRole role_of(const Directories& directories, std::size_t index) {
    return {.store = directories.front()->uuid(),
            .device = static_cast<std::uint32_t>(index),
            .device_count = static_cast<std::uint32_t>(directories.size())};
}

// Nothing of a store that exists is overwritten: not its first directory, and no further one under a new first.
void check_may_create(const Directories& directories, const std::optional<StoreUuid>& lost) {
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const StoreDirectory& directory = *directories[i];
        const std::optional<DeviceRole>& role = directory.role();
        const bool further_of_this = i > 0 && role && role->device > 0 && role->store == directories.front()->uuid();
        const bool further_of_lost =
            i > 0 && role && lost &&
            *role == DeviceRole{.store = *lost,
                                .device = static_cast<std::uint32_t>(i),
                                .device_count = static_cast<std::uint32_t>(directories.size())};
        const DirectoryLook look = directory.look();
        if (look.content != DirectoryContent::committed || further_of_this || further_of_lost) continue;
        const std::vector<std::string> problems = look.manifests.problems(directory.path());
        throw Error(
            ExitCode::storage,
            fmt::format("{} holds a store already ({}); a new one is not made over it. {}Give the directories in the "
                        "order they were created with, or choose others.",
                        directory.path(), describe(directory.role()),
                        problems.empty() ? "" : fmt::format("{}. ", fmt::join(problems, "; "))));
    }
}

void check_roles(const Directories& directories, const Remedies& remedies) {
    for (std::size_t i = 0; i < directories.size(); ++i) {
        const DeviceRole wanted = role_of(directories, i);
        if (directories[i]->role() == wanted) continue;
        if (i == 0) refuse_lock_of_another(directories[0]->fd(), directories[0]->path(), wanted.store, remedies);
        if (!directories[i]->role())
            throw Error(
                ExitCode::storage,
                fmt::format("{} is of no store yet, but is given as {}: its files are gone, or its drive is not "
                            "mounted there. Mount it, or give the same directories in the same order as at the "
                            "start. {}.",
                            directories[i]->path(), describe(wanted),
                            remedies.of_further_directory(directories.front()->path())));
        const bool of_another = directories[i]->role()->store != wanted.store;
        throw Error(
            ExitCode::storage,
            fmt::format("{} is {}, but is given as {}; give the same directories in the same order as at the start.{}",
                        directories[i]->path(), describe(directories[i]->role()), describe(wanted),
                        of_another ? fmt::format(" Where only the file '{}' there is another store's: {}.",
                                                 StoreDirectory::lock_name, remedies.of_lock(directories[i]->path()))
                                   : ""));
    }
}

void check_device_count(const Manifest& manifest, const Directories& directories) {
    const std::uint32_t devices = manifest.geometry.device_count();
    if (devices == directories.size()) return;
    throw Error(ExitCode::storage,
                fmt::format("{}: the store lies on {} devices, but {} directories are given; give all of them.",
                            directories.front()->path(), devices, directories.size()));
}

}  // namespace penstock::store
