// The directory a store lives in on one device: who may use it, and what it holds.
#pragma once

#include "swap/directory/descriptor.h"
#include "swap/directory/file_hold.h"
#include "swap/directory/recovery.h"
#include "swap/directory/remedy.h"
#include "swap/format/lock_text.h"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::store {

enum class DirectoryContent : std::uint8_t {
    nothing,     // empty but for our lock: free to create a store in
    unfinished,  // a store of this job whose first commit never came: create again
    committed,   // a store of this job with a committed generation (maybe damaged, or its manifests missing: open()
                 // says), or a further device of one
};

// Throws Error (usage) unless it is_possible_job().
void check_job(const std::string& job);

// A random identity (RFC 4122, version 4). Throws Error (storage); `path` is for its message.
StoreUuid draw_uuid(const std::string& path);

// Throws Error (storage) where all manifests that are right in themselves are of one other store than the lock beside
// them, which is of `lock`: it was put there by mistake.
void refuse_lock_of_another(int directory_fd, const std::string& path, const StoreUuid& lock, const Remedies& remedies);

struct DirectoryLook {
    DirectoryContent content = DirectoryContent::nothing;
    Recovery manifests;  // not settled where they were not read, because the content is clear without them
};

// Holds the directory locked (flock on its file `lock`) while it lives; the kernel releases the lock when the process
// dies, so what a dead process left is simply taken over. A second object for the same directory in this process is
// refused too. Creates the directory if its parent exists; mode 0700, files 0600, everything opened beneath it without
// following links (the path itself may lead through links).
//
// The constructor throws Error: (usage) on an impossible job name; (storage), naming the path, when the directory is in
// use by running processes (all of them named), belongs to another job (its name), holds files and is not ours (one of
// them named), or is not writable (read-only file system, permissions); (does_not_fit) when there is no room even for
// its lock: then nothing of it is left. A lock alone, whatever a start that was interrupted left in it, is no store's
// and nobody's. In a directory that is ours, files of other names are left alone; but for withdraw(), nothing is ever
// deleted.
class StoreDirectory {
   public:
    // `job` names who owns the store: 1 to 200 bytes without control characters.
    StoreDirectory(const std::string& path, const std::string& job, const Remedies& remedies = *library_remedies());
    // A directory that is a store's already, whichever job's. Exclusive: as above. Shared: for reading, beside other
    // readers and never beside a user; nothing in it is changed, and read permission is enough. Throws as above, and
    // Error (storage) when it does not exist or is no store's.
    static StoreDirectory find(const std::string& path, Sharing sharing,
                               const Remedies& remedies = *library_remedies());
    ~StoreDirectory();  // gives the lock up, also where a child of this process has the descriptor, too
    StoreDirectory(StoreDirectory&& other) noexcept = default;
    StoreDirectory& operator=(StoreDirectory&& other) noexcept = default;

    const std::string& path() const noexcept { return path_; }
    const std::string& job() const noexcept { return lock_text_.job; }
    const StoreUuid& uuid() const noexcept { return lock_text_.uuid; }
    bool shared() const noexcept { return sharing_ == Sharing::shared; }
    DirectoryLook look() const;  // now. Throws Error (storage) when a file cannot be asked for
    DirectoryContent content() const { return look().content; }
    // Its place in the store that was created in it, if one was.
    const std::optional<DeviceRole>& role() const noexcept { return lock_text_.role; }
    int fd() const noexcept { return directory_.get(); }
    static constexpr const char* lock_name = "lock";      // beneath fd(); a regular file: good for probing a backend
    int lock_fd() const noexcept { return lock_.get(); }  // readable, through the page cache

    // Removes the lock, and the directory, that this object made, where they have become no store's: what is refused
    // leaves nothing behind. Then it may only be destroyed.
    void withdraw() noexcept;
    // Makes the directory a part of a store, durably. For TensorStore::create(). Throws Error (storage).
    void assign(const DeviceRole& role);
    // Makes the names of files created in it durable. Throws Error (storage).
    void sync() const;

   private:
    StoreDirectory(const std::string& path, Sharing sharing, const Remedies& remedies);  // find()'s
    void take(const std::string& job, const Remedies& remedies);
    void refuse_if_foreign(const Remedies& remedies) const;
    void write_lock();

    std::string path_;
    Sharing sharing_ = Sharing::exclusive;
    bool made_directory_ = false;  // by this object
    bool made_lock_ = false;
    Descriptor directory_;
    Descriptor lock_;
    LockText lock_text_;
};

}  // namespace penstock::store
