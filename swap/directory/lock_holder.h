// Who holds a store directory's lock now: what the kernel says, not who wrote to the file last.
#pragma once

#include "swap/format/lock_text.h"

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace penstock::store {

struct LockHolder {
    pid_t pid = 0;
    bool exclusive = false;  // a user; else one of perhaps many readers
    bool operator==(const LockHolder&) const = default;
};

// Of flock() on the open file, as far as /proc/locks shows them: a holder in another pid namespace or on another host
// is not seen.
std::vector<LockHolder> holders_of(int lock_fd);

// "process 4711 on NAME since 2026-01-01T00:00:00Z, job 'penstock'", or "this process, 4711 on ...": who wrote it.
std::string describe_holder(const LockText& lock);
// The same of whoever holds it now, all of them; `lock` is what the file says, and counts only where it is of a holder.
// Never empty.
std::string describe_holders(const std::vector<LockHolder>& holders, const std::optional<LockText>& lock);

}  // namespace penstock::store
