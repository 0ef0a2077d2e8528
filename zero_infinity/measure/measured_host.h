// What the processor takes for the work around compute: updates, norms, hashes.
#pragma once

#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/threads/workers.h"

#include <cstddef>
#include <span>

namespace penstock::zero {

// Seconds, each over memory that no cache holds.
struct MeasuredHost {
    double update_per_element = 0;  // by all workers
    double norm_per_element = 0;
    double hash_per_byte = 0;  // by the driver's thread
};

// `seconds` of each. Throws Error (does_not_fit) where the machine has no 256 MiB for it.
MeasuredHost measure_host(const SessionPlan& plan, Workers& workers, double seconds);

// Of tiles, one after the other, on this thread. REQUIRES: memory of more than a tile of 4 MiB.
double hash_seconds_per_byte(std::span<const std::byte> memory, double seconds);

}  // namespace penstock::zero
