// How many threads hash tiles beside the driver's own. Pure.
#pragma once

namespace penstock::zero {

// What one thread carries, in bytes per second: a little less than one core hashes, because it submits and collects,
// too (bench/results/2026-11-26-first-gpu.md).
inline constexpr double driver_bytes_per_second = 10e9;

struct HashDemand {
    double bytes_per_second = 0;   // that the devices move together at most; 0: nobody knows
    unsigned cores = 1;            // that the process may use
    unsigned compute_threads = 1;  // of them
};

// None where the driver's thread keeps up with the devices, or that is not known; else as many as keep up, as far as
// compute and the driver's thread leave them cores: more would take from compute what they give to the devices.
unsigned hash_threads(const HashDemand& demand) noexcept;

}  // namespace penstock::zero
