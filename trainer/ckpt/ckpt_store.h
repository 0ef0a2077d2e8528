// Finds a store or a snapshot by what the user calls it, and opens it.
#pragma once

#include "aio/io.h"
#include "swap/directory/directory_holder.h"
#include "swap/directory/kept_list.h"
#include "swap/directory/recovery.h"
#include "swap/directory/store_directory.h"
#include "swap/store/tensor_store.h"
#include "trainer/ckpt/ckpt.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// A store seen without its lock: what it had committed at that moment.
struct StoreLook {
    std::string path;
    store::LockText lock;
    bool in_use = false;
    store::Recovery recovery;
};

// Nothing when the directory is no store's. Throws Error: usage (there is no such directory), storage (it is a further
// device of a store).
std::optional<StoreLook> look_at_store(const std::string& path);

std::string kept_folder_of(const CkptRequest& request);
// Of request.name (trainer/ckpt/find_snapshot.h).
std::string snapshot_path(const CkptRequest& request);

// Throws Error (storage) with the holder's name and `remedy` when a running process uses it.
void refuse_if_in_use(const std::string& path, const std::string& remedy);

// Locked and open; destroyed in reverse. Throws Error as StoreDirectory, open_backend() and TensorStore::open().
struct CkptStore {
    std::vector<store::StoreDirectory> directories;
    std::shared_ptr<aio::Io> io;
    std::unique_ptr<store::TensorStore> store;

    // With an Io of its own. lock() alone leaves `io` and `store` to open_locked().
    static CkptStore lock(const std::string& path, const std::vector<std::string>& also, store::Sharing sharing);
    static CkptStore open(const std::string& path, const std::vector<std::string>& also, store::Sharing sharing);
    void open_locked();
    // A snapshot, for reading, through an Io that is there.
    static CkptStore open_snapshot(const std::string& path, std::shared_ptr<aio::Io> io);
};

}  // namespace penstock::trainer
