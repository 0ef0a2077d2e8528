// The open files of one store: what create() makes and open() finds. Moving it leaves every File where it is.
#pragma once

#include "aio/file.h"
#include "swap/directory/descriptor.h"
#include "swap/directory/store_directory.h"
#include "swap/format/layout.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock::store {

struct StoreFiles {
    std::vector<aio::File> data;       // one per device
    std::vector<aio::File> manifests;  // two, in the first directory
    std::vector<Descriptor> directories;
    std::vector<std::string> notes;     // direct I/O refused, others may write to a directory
    std::vector<FileHold> holds;        // of all of them; given up before they are closed
    std::unique_ptr<StoreFiles> place;  // where keep_for_ever() puts them: then nothing may be allocated

    // What every file asks of offsets, lengths and memory, at least 4096. Throws Error (storage) above
    // max_granule_bytes.
    std::uint64_t granule_bytes() const;

    // The first file that has its name no more: nobody finds what is written to it. Null when there is none. Asked of
    // the directory that was opened, because some file systems give a removed file another name (NFS), and because it
    // may be moved as a whole.
    const aio::File* removed() const noexcept;

    // Leaves them open, and held, until the process ends: a stuck device may still work on them.
    void keep_for_ever() noexcept;

    // Of each data file. Throws Error (storage).
    void set_data_length(std::uint64_t bytes) const;

    // Both hold every file, and wait for that as FileHold does: from then on nothing of an earlier user changes them.
    // make() takes over files of an interrupted creation; what find() opens in a shared directory can only be read.
    // Both throw Error (storage).
    static StoreFiles make(const std::vector<StoreDirectory*>& directories, aio::Caching caching,
                           std::chrono::nanoseconds patience, const WaitNotice& notice = {});
    static StoreFiles find(const std::vector<StoreDirectory*>& directories, aio::Caching caching,
                           std::chrono::nanoseconds patience, const WaitNotice& notice = {});
};

// What reserve() takes of the directories, all together.
std::uint64_t bytes_on_disk(const Layout& layout);

// Throws Error (does_not_fit), naming directory, needed and free bytes, where the file systems say that `layout` and
// its manifests have no room, or naming a file that is to be longer than this process may make one. Touches nothing.
void check_room(const std::vector<StoreDirectory*>& directories, const Layout& layout);

// Reserves it. Throws Error as check_room(), before anything is reserved.
void reserve(StoreFiles& files, const std::vector<StoreDirectory*>& directories, const Layout& layout);
// The same in two parts.
void reserve_manifests(StoreFiles& files, const std::vector<StoreDirectory*>& directories, const Layout& layout);
void reserve_data(StoreFiles& files, const Layout& layout);

// Throws Error (does_not_fit) naming the first file that is to be longer than this process may make one: the kernel
// would send a signal that ends it.
void check_size_limit(const StoreFiles& files, const Layout& layout);

// Gives the manifest files their length, because it says where copy 2 begins. Throws Error (storage).
void fit_manifests(const StoreFiles& files, const Layout& layout);

}  // namespace penstock::store
