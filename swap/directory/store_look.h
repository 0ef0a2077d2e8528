// A store seen without opening it.
#pragma once

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
    bool in_use = false;  // its lock is held, exclusively, by a process that /proc/locks shows
    Recovery recovery;

    std::vector<std::string> problems() const { return recovery.problems(path); }
};

// At the directory open as `directory_fd`. Takes no lock, reads only, follows no link; nothing when the directory is no
// store's. A holder in another pid namespace or on another host is not seen. Throws Error (storage) when the lock
// cannot be read: then nobody knows whose it is.
std::optional<StoreLook> look_at_store(int directory_fd, std::string path);

// "process 4711 on NAME since 2026-01-01T00:00:00Z, job 'penstock'", or "this process, 4711 on ..."
std::string describe_holder(const LockText& lock);

}  // namespace penstock::store
