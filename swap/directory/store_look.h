// A store seen without opening it.
#pragma once

#include "swap/directory/lock_holder.h"
#include "swap/directory/recovery.h"
#include "swap/format/lock_text.h"

#include <optional>
#include <string>
#include <vector>

namespace penstock::store {

// Whose a store's directory is, who uses it, and what it had committed when it was looked at.
struct StoreLook {
    std::string path;  // for messages
    LockText lock;
    bool in_use = false;              // its lock is held, exclusively, by a process that /proc/locks shows
    std::vector<LockHolder> holders;  // of its lock: one user, or readers
    Recovery recovery;

    std::string holder_text() const { return describe_holders(holders, lock); }  // REQUIRES: there are some
    std::vector<std::string> problems() const { return recovery.problems(path); }
};

// At the directory open as `directory_fd`. Takes no lock, reads only, follows no link; nothing when the directory is no
// store's. A holder in another pid namespace or on another host is not seen. Throws Error (storage) when the lock
// cannot be read: then nobody knows whose it is.
std::optional<StoreLook> look_at_store(int directory_fd, std::string path);

// The same; nothing also where no directory is, or where it may not be opened.
std::optional<StoreLook> look_at_store(const std::string& path);

// A store is there of which something was committed.
bool has_commits(const std::string& path);

// Whether no store is there, so that one may be made: nothing is in it but what may stand beside one, and perhaps a
// lock that a start has left alone, whatever part of it was written. What cannot be looked at may be one.
bool has_no_store(int directory_fd);

}  // namespace penstock::store
