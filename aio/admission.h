// Which bytes may go to a device now. Pure: integers in, a decision out; io.cpp acts on it.
#pragma once

#include "aio/transfer.h"
#include "aio/words/io_error.h"

#include <array>
#include <chrono>
#include <cstdint>

namespace penstock::aio {

// Bytes in flight on one device at most, by direction and class. Nothing that is in flight can be called back, so these
// are what the next demand read may have to wait behind. Prefetch, write-back and scrub may starve for as long as more
// urgent work of their direction waits; a throttled write-back does not.
struct InFlightLimits {
    std::uint64_t read_bytes = 8ULL << 20;        // all classes together; demand reads alone may fill it
    std::uint64_t prefetch_bytes = 6ULL << 20;    // of them
    std::uint64_t write_bytes = 9ULL << 20;       // all classes together; demand writes alone may fill it
    std::uint64_t write_back_bytes = 8ULL << 20;  // of them
    std::uint64_t throttled_bytes = 4ULL << 20;   // instead, while demand reads are about
    std::uint64_t scrub_bytes = 1ULL << 20;       // both directions together
    // How long after the last demand read write-back stays throttled: the next one is likely to follow.
    std::chrono::nanoseconds calm = std::chrono::milliseconds(10);
    // Places of the backend (Backend::depth), a quarter of them at most, that only demand reads may take: many small
    // writes must not take them all.
    std::uint32_t demand_places = 4;
};

// Throws nothing; aborts when the limits contradict each other or a chunk: chunk_bytes is at most each bound,
// prefetch_bytes + scrub_bytes at most read_bytes, throttled_bytes at most write_back_bytes, that at most write_bytes.
void check_limits(const InFlightLimits& limits, std::uint32_t chunk_bytes);

// Of one of `sharing` programs that use a device together: a part of each bound, of a chunk at least. As many of them
// then put no more before a demand read than one alone does.
InFlightLimits part_of(const InFlightLimits& limits, std::uint32_t sharing, std::uint32_t chunk_bytes) noexcept;

// What a device has in flight and waiting. Kept by Io, one per device.
struct DeviceLoad {
    std::array<std::uint64_t, urgency_count> read_bytes{};   // in flight; a chunk that pauses before a retry counts
    std::array<std::uint64_t, urgency_count> write_bytes{};  // in flight
    std::array<bool, urgency_count> read_waits{};            // queued, not wholly issued
    std::array<bool, urgency_count> write_waits{};
    bool demand_recent = false;  // a demand read is in flight, or ended within `calm`
    // Of the backend, less one for each other device that has nothing in flight: one that is stuck must not stop all.
    std::uint32_t free_places = 0;
};

enum class Admission : std::uint8_t {
    yes,
    full,       // ask again when something comes back
    throttled,  // ask again when the demand reads are served and calm has passed
};

// The rules, in their order:
//   1. no place left: full. Any but demand reads must leave demand_places free, unless nothing of the device is in
//      flight: others' demand reads may hold those places for long.
//   2. a more urgent class of the same direction waits: full
//   3. scrub, while anything else waits on the device: full
//   4. nothing of the direction is in flight: yes, whatever its length
//   5. write-back above throttled_bytes, while a demand read waits or is recent: throttled
//   6. above a bound of the class or the direction: full
// REQUIRES: kind is read or write. (A flush needs a place only.)
Admission admit(const InFlightLimits& limits, const DeviceLoad& load, IoKind kind, Urgency urgency,
                std::uint64_t bytes) noexcept;

}  // namespace penstock::aio
