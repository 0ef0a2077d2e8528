// Finds a store or a snapshot by what the user calls it, and opens it.
#pragma once

#include "swap/directory/snapshot_list.h"
#include "swap/directory/store_look.h"
#include "swap/store/open_store.h"
#include "trainer/ckpt/ckpt.h"

#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// Nothing when the directory is no store's. Throws Error: usage (there is no such directory), storage (it is a further
// device of a store).
std::optional<store::StoreLook> look_at_store(const std::string& path);

// Of a snapshot: "generation 7 of store UUID, made of its blocks". REQUIRES: it has an origin.
std::string origin_text(const store::Manifest& manifest);

std::string snapshot_folder_of(const CkptRequest& request);
// Of request.name (trainer/ckpt/find_snapshot.h).
std::string snapshot_path(const CkptRequest& request);

// Throws Error (storage) with the holder's name and `remedy` when a running process uses it.
void refuse_if_in_use(const std::string& path, const std::string& remedy);

std::vector<std::string> directories_of(const std::string& path, const std::vector<std::string>& also);
// Gives a store that is locked an Io for reading all of it, and opens it; tells the console what is waited for. Throws
// Error as OpenStore.
void open_locked(store::OpenStore& locked, Console& console, store::OpenOptions options = {});
// The request's own store, for reading; the snapshot in `path`. Throw Error as StoreDirectory::find() and OpenStore.
store::OpenStore open_store(const CkptRequest& request, Console& console);
store::OpenStore open_snapshot(const std::string& path, Console& console);
// The same through the Io of a store that is open.
store::OpenStore open_snapshot(const std::string& path, const store::OpenStore& beside, Console& console);

}  // namespace penstock::trainer
