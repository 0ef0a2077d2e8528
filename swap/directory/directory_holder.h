// Who uses a store directory, told without taking its lock.
#pragma once

#include "swap/format/lock_text.h"

#include <optional>
#include <string>

namespace penstock::store {

struct DirectoryLook {
    std::optional<LockText> lock;  // nothing: it is no store's directory
    bool in_use = false;           // its lock is held, exclusively, by a process that /proc/locks shows
};

// Of the directory open as `directory_fd`. Reads only, follows no link; problems of reading mean "no store's". A holder
// in another pid namespace or on another host is not seen.
DirectoryLook look_at(int directory_fd);

// "process 4711 on NAME since 2026-01-01T00:00:00Z, job 'penstock'", or "this process, 4711 on ..."
std::string describe_holder(const LockText& lock);

}  // namespace penstock::store
