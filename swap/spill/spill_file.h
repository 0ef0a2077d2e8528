// Where bytes are spilled to in one directory: a file that nobody finds and that leaves nothing.
#pragma once

#include "aio/file.h"
#include "swap/directory/store_directory.h"

namespace penstock::store {

// A new file of mode 0600, without a name. Its room is free again when the process has ended, however it did: there is
// nothing to lock, to describe or to clean up. Throws Error (storage). REQUIRES: the directory is locked for this
// process alone.
aio::File make_spill_file(const StoreDirectory& directory, aio::Caching caching);

// The same where the file system has no files without a name: it has spill_file_name for a moment. A kill in that
// moment leaves it there, empty, for the next call to remove.
aio::File make_spill_file_by_name(const StoreDirectory& directory, aio::Caching caching);

}  // namespace penstock::store
