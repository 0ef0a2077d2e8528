// A hard limit on memory, made of named uses that are known before anything is allocated.
#pragma once

#include "aio/words/byte_count.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace penstock::pool {

inline constexpr std::size_t granule_bytes = 4096;  // uses and leases are rounded up to this
constexpr std::uint64_t whole_granules(std::uint64_t bytes) noexcept {
    return round_up(bytes, granule_bytes);
}

struct Use {
    std::string name;  // "weights", "gradients", "staging", …
    std::uint64_t bytes = 0;
    std::string setting;  // the configuration key that makes it smaller, for the refusal's remedy; may be empty
};

// What this machine can still give: the least of free RAM and the room under the limits of the cgroup and its ancestors
// (v1 and v2). Page cache, and slabs in v2, count as room but for half, or 64 MiB, of each: a program that reads much
// has its group full of them.
struct MachineMemory {
    std::uint64_t available_bytes = 0;
    std::string limited_by;  // "free RAM" or "cgroup limit /sys/fs/cgroup/…"
    // What the kernel may let a ring register: RLIMIT_MEMLOCK less VmLck and VmPin; unlimited (the largest number) with
    // CAP_IPC_LOCK in the first user namespace. An estimate, to choose what to offer: other processes of the user are
    // not seen, and the kernel's refusal decides.
    std::uint64_t lockable_bytes = std::numeric_limits<std::uint64_t>::max();
    // `root` stands before /proc and /sys: a test shows another machine.
    static MachineMemory read(const std::string& root = "");
};

// A value: plain arithmetic, no memory behind it.
class Budget {
   public:
    // `setting` is the configuration key of the limit itself, named when it is too small.
    Budget(std::uint64_t limit_bytes, std::string setting) : limit_bytes_(limit_bytes), setting_(std::move(setting)) {}

    // The use's bytes are rounded up to the granule; 0 is allowed. REQUIRES: the name is new and not empty.
    void add(Use use);

    std::uint64_t limit_bytes() const noexcept { return limit_bytes_; }
    std::uint64_t used_bytes() const noexcept;
    const std::vector<Use>& uses() const noexcept { return uses_; }

    // Throws Error (does_not_fit) with the table of uses, what is missing and the settings to change, when the uses
    // exceed the limit or the machine has less than the uses.
    void check(const MachineMemory& machine) const;
    // "memory.weights (weights), memory.staging (staging)", the largest use first; empty when there is nothing to
    // lower.
    std::string settings_to_lower() const;
    // One line per use and the total against the limit.
    std::string table() const;

   private:
    std::uint64_t limit_bytes_;
    std::string setting_;
    std::vector<Use> uses_;
};

}  // namespace penstock::pool
