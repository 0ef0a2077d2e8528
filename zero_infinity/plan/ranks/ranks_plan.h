// What a run of several ranks takes: each of them, those of one machine together, and all.
#pragma once

#include "zero_infinity/plan/session_plan.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::zero {

struct RankCount {
    std::uint32_t ranks = 1;
    std::uint32_t of_node = 0;  // the most on one machine; 0: all

    // The rank that is planned for: shards are equal, so each takes what any other does.
    Partition any() const noexcept { return {0, ranks}; }
    std::uint32_t sharing() const noexcept { return of_node == 0 || of_node > ranks ? ranks : of_node; }
};

// What comes to a rank from the others, padding included; as much goes from it. Small calls are beside it:
// LaneCounters.
struct WireBytes {
    std::uint64_t gathered = 0;        // of weights, in a step
    std::uint64_t exchanged = 0;       // of gradients, in a step
    std::uint64_t gathered_first = 0;  // of weights, before the first step of a life
};
// Of steps of so many passes. REQUIRES: weights are gathered for good.
WireBytes wire_bytes(const SessionPlan& of_rank, std::uint64_t passes);

// Throws Error (does_not_fit) where the ranks of this machine do not fit together, with the table that an opening has.
void check_node(const SessionPlan& of_rank, const RankCount& count);

// Free now, on all devices of these directories, or of the nearest ones above them that are there; 0: nobody knows.
std::uint64_t free_bytes_of(const std::vector<std::string>& directories);

// In words: a row for each thing that is taken, by rank, machine and run, and ZeRO's own count beside it. Of a machine
// that is like this one. `free_bytes`: on its devices.
std::string ranks_table(const SessionPlan& of_rank, const RankCount& count, std::uint64_t passes,
                        std::uint64_t free_bytes);

}  // namespace penstock::zero
