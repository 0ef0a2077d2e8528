// The snapshots in a folder: their names, what they hold, and the oldest that may go.
#pragma once

#include "aio/io.h"
#include "swap/directory/file_hold.h"
#include "swap/format/manifest.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::store {

inline constexpr const char* snapshot_folder_name =
    "kept";  // beneath a store's first directory, unless another is given

// A snapshot is the directory FOLDER/NAME. Names have 1 to 100 of the characters A-Z a-z 0-9 . _ - and do not begin
// with a dot.
bool is_snapshot_name(const std::string& name) noexcept;

struct ListedSnapshot {
    std::string name;
    std::string path;
    std::string job;                   // of the lock
    std::optional<Manifest> manifest;  // nothing: unfinished, damaged or not readable, `problem` says which
    bool unfinished = false;           // the copy was interrupted, or is under way
    std::string problem;
    std::uint64_t disk_bytes = 0;
};

// All in `folder`, by time and then name; empty when there is no such folder. Directories that are no store's are
// passed over, and those that cannot be read are listed, for they may be one. Takes no lock and changes nothing. Throws
// Error (storage) when the folder cannot be read.
std::vector<ListedSnapshot> list_snapshots(const std::string& folder);

// Removes the files of a kept or unfinished store and its directory. Waits, at most `patience`, until what a process
// that was killed had under way there has landed. Throws Error (storage): it is in use, it is a durable store, or there
// is something in it that is not a store's (which is named; nothing was removed then).
void remove_snapshot(const std::string& path, std::chrono::nanoseconds patience = aio::default_deadline,
                     const WaitNotice& notice = {});

// Whether it is finished and a copy of the store `of`: several runs may keep in one folder.
bool is_copy_of(const ListedSnapshot& snapshot, const StoreUuid& of) noexcept;

}  // namespace penstock::store
