// A recorded trace, asked again of a real pool.
#pragma once

#include "pinned_pool/pool_trace.h"

#include <cstdint>
#include <vector>

namespace penstock {

// What a trace asked for, by arithmetic alone.
struct TraceDemand {
    std::uint64_t leases = 0;
    std::uint64_t requested_bytes = 0;       // sum over all leases
    std::uint64_t peak_requested_bytes = 0;  // out at the same time, at most
    std::uint64_t refused = 0;               // when it was recorded
    // What an allocator would grant that rounds each request up to a power of two, as torch's pinned allocator does.
    std::uint64_t power_of_two_bytes = 0;
    std::uint64_t peak_power_of_two_bytes = 0;
};
TraceDemand demand_of(const PoolTrace& trace);

// What became of it in the pool; over all uses.
struct ReplayAccount {
    std::uint64_t requested_bytes = 0;  // of what was granted
    std::uint64_t granted_bytes = 0;
    std::uint64_t peak_requested_bytes = 0;  // out at the same time, at most
    std::uint64_t peak_granted_bytes = 0;
    std::uint64_t peak_parked_bytes = 0;  // sum of the uses' peaks, as the next
    std::uint64_t use_peak_bytes = 0;
    std::uint64_t reach_bytes = 0;
    std::uint64_t refused = 0;
    std::uint64_t refused_fragmented = 0;  // of them: there was room, but not in one piece
    double worst_fragmentation = 0;        // 1 - longest free ÷ free, of one use, at its worst moment
    std::uint64_t worst_free_bytes = 0;    // free in that use at that moment
};

struct ReplayTimes {
    std::vector<std::uint32_t> grant_ns;   // of each lease, in order; the clock's own time is in it
    std::vector<std::uint32_t> return_ns;  // of each return
};

// A trace made ready: what the program's own bookkeeping does for the trace is done before the pool is asked.
class Replay {
   public:
    // The trace outlives this.
    explicit Replay(const PoolTrace& trace);

    Budget budget() const;
    // REQUIRES: a pool of budget(), in which nothing is out; account() needs a fresh one. What is out at the end of the
    // trace is returned then.
    ReplayAccount account(PinnedPool& pool) const;
    ReplayTimes times(PinnedPool& pool) const;

   private:
    const PoolTrace& trace_;
    std::vector<std::uint32_t> place_of_;  // per event: which place its lease has in the program
    std::uint32_t places_ = 0;             // leases out at the same time, at most
};

}  // namespace penstock
