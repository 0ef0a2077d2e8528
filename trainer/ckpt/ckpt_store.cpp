#include "trainer/ckpt/ckpt_store.h"

#include "aio/file.h"
#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "swap/directory/descriptor.h"
#include "trainer/ckpt/find_snapshot.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>

namespace penstock::trainer {
namespace {

// No training waits for the device meanwhile, and what is in flight bridges the time in which a tile is hashed.
constexpr std::uint64_t in_flight_bytes = 16ULL << 20;

}  // namespace

std::optional<StoreLook> look_at_store(const std::string& path) {
    const store::Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory)
        throw Error(ExitCode::usage, fmt::format("{}: the directory cannot be opened: {}; check the path", path,
                                                 aio::errno_text(errno)));
    store::DirectoryLook look = store::look_at(directory.get());
    if (!look.lock) return std::nullopt;
    if (look.lock->role && look.lock->role->device > 0)
        throw Error(ExitCode::storage, fmt::format("{} is device {} of a store over {} directories, and the first one "
                                                   "holds its manifests: name that one",
                                                   path, look.lock->role->device, look.lock->role->device_count));
    // Four copies are read one after the other while a training may write them; that none is whole in any of three
    // looks is no coincidence.
    store::Recovery recovery;
    for (int tries = 0; tries < 3 && !recovery.newest; ++tries) {
        recovery = store::recover(directory.get(), look.lock->uuid);
        if (!look.in_use) break;
    }
    return StoreLook{
        .path = path, .lock = std::move(*look.lock), .in_use = look.in_use, .recovery = std::move(recovery)};
}

std::string kept_folder_of(const CkptRequest& request) {
    return request.kept_folder.empty() ? request.directory + "/" + store::kept_folder_name : request.kept_folder;
}

std::string snapshot_path(const CkptRequest& request) {
    return find_snapshot(kept_folder_of(request), request.name);
}

void refuse_if_in_use(const std::string& path, const std::string& remedy) {
    const auto look = look_at_store(path);
    if (!look || !look->in_use) return;
    throw Error(ExitCode::storage,
                fmt::format("{}: the store is in use by {}; {}", path, describe_holder(look->lock), remedy));
}

CkptStore CkptStore::lock(const std::string& path, const std::vector<std::string>& also, store::Sharing sharing) {
    CkptStore opened;
    opened.directories.reserve(1 + also.size());
    opened.directories.push_back(store::StoreDirectory::find(path, sharing));
    for (const std::string& further : also) opened.directories.push_back(store::StoreDirectory::find(further, sharing));
    return opened;
}

CkptStore CkptStore::open(const std::string& path, const std::vector<std::string>& also, store::Sharing sharing) {
    CkptStore opened = lock(path, also, sharing);
    opened.open_locked();
    return opened;
}

void CkptStore::open_locked() {
    const store::StoreDirectory& first = directories.front();
    // Tried on a file that is opened as the store's are.
    const aio::File probe(first.fd(), store::StoreDirectory::lock_name,
                          first.path() + "/" + store::StoreDirectory::lock_name, {.mode = aio::FileMode::read_only});
    aio::IoLimits limits;
    limits.in_flight.read_bytes = in_flight_bytes;
    io = std::make_shared<aio::Io>(aio::open_backend(probe.fd(), {}).backend, limits);
    std::vector<store::StoreDirectory*> pointers;
    for (store::StoreDirectory& directory : directories) pointers.push_back(&directory);
    store = store::TensorStore::open(*io, pointers);
}

CkptStore CkptStore::open_snapshot(const std::string& path, std::shared_ptr<aio::Io> io) {
    CkptStore opened;
    opened.directories.push_back(store::StoreDirectory::find(path, store::Sharing::shared));
    opened.io = std::move(io);
    opened.store = store::TensorStore::open(*opened.io, {&opened.directories.front()});
    return opened;
}

}  // namespace penstock::trainer
