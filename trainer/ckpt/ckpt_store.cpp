#include "trainer/ckpt/ckpt_store.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "trainer/ckpt/find_snapshot.h"
#include "trainer/cli/console.h"
#include "trainer/cli/remedies.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

namespace penstock::trainer {
namespace {

// No training waits for the device meanwhile, and what is in flight bridges the time in which a tile is hashed.
constexpr std::uint64_t in_flight_bytes = 16ULL << 20;

}  // namespace

std::optional<store::StoreLook> look_at_store(const std::string& path) {
    const store::Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory)
        throw Error(ExitCode::usage, fmt::format("{}: the directory cannot be opened: {}; check the path", path,
                                                 aio::errno_text(errno)));
    auto look = store::look_at_store(directory.get(), path);
    if (look && look->lock.role && look->lock.role->device > 0)
        throw Error(ExitCode::storage, fmt::format("{} is device {} of a store over {} directories, and the first one "
                                                   "holds its manifests: name that one",
                                                   path, look->lock.role->device, look->lock.role->device_count));
    return look;
}

std::string origin_text(const store::Manifest& manifest) {
    const store::Origin& origin = manifest.origin.value();
    return fmt::format("generation {} of store {}{}", origin.generation, store::to_string(origin.store),
                       manifest.hashed_as == store::HashedAs::origin ? ", made of its blocks" : "");
}

std::string snapshot_folder_of(const CkptRequest& request) {
    return request.snapshot_folder.empty() ? request.directory + "/" + store::snapshot_folder_name
                                           : request.snapshot_folder;
}

std::string snapshot_path(const CkptRequest& request) {
    return find_snapshot(SnapshotFolder(snapshot_folder_of(request)), request.name);
}

void refuse_if_in_use(const std::string& path, const std::string& remedy) {
    const auto look = look_at_store(path);
    if (!look || !look->in_use) return;
    throw Error(ExitCode::storage, fmt::format("{}: the store is in use by {}; {}", path, look->holder_text(), remedy));
}

std::vector<std::string> directories_of(const std::string& path, const std::vector<std::string>& also) {
    std::vector<std::string> paths{path};
    paths.insert(paths.end(), also.begin(), also.end());
    return paths;
}

void open_locked(store::OpenStore& locked, Console& console, store::OpenOptions options) {
    store::StoreIoOptions io;
    io.limits.in_flight.read_bytes = in_flight_bytes;
    locked.start_io(io);
    options.waiting = told_to(console);
    locked.open(std::move(options));
}

store::OpenStore open_store(const CkptRequest& request, Console& console) {
    const std::vector<std::string> directories = directories_of(request.directory, request.also);
    store::OpenStore opened =
        store::OpenStore::find(directories, store::Sharing::shared,
                               remedies_of_store({.directories = directories, .snapshots = request.snapshot_folder}));
    open_locked(opened, console);
    return opened;
}

store::OpenStore open_snapshot(const std::string& path, Console& console) {
    store::OpenStore opened = store::OpenStore::find({path}, store::Sharing::shared, remedies_of_snapshot());
    open_locked(opened, console);
    return opened;
}

store::OpenStore open_snapshot(const std::string& path, const store::OpenStore& beside, Console& console) {
    store::OpenStore opened = store::OpenStore::find({path}, store::Sharing::shared, remedies_of_snapshot());
    opened.share_io(beside);
    opened.open({.waiting = told_to(console)});
    return opened;
}

}  // namespace penstock::trainer
