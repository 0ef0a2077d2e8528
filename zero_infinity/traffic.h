// Bytes of NVMe traffic per parameter and step, as one function of the four things that decide them.
#pragma once

#include "zero_infinity/codec.h"

#include <cstdint>

namespace penstock {

enum class UpdateOrder : std::uint8_t { after_backward };  // deferred and in_backward: with the scheduler
enum class Durability : std::uint8_t { every_step };  // every K steps and scratch: with the store's durability modes
enum class Tier : std::uint8_t { host, nvme };             // where a kind of bytes is kept between its uses

struct Residency {
    Tier weights = Tier::nvme;
    Tier states = Tier::nvme;
};

struct Traffic {
    double read_bytes = 0;   // per trainable parameter and step
    double write_bytes = 0;
    double total() const noexcept { return read_bytes + write_bytes; }
};

// After backward, durable every step; reads + writes in bytes:
//   weights, states on   split          plain_fp32     plain_16-bit
//   nvme, nvme           16 + 12 = 28   20 + 12 = 32   16 + 14 = 30
//   host, nvme           10 + 12 = 22    8 + 12 = 20   12 + 14 = 26
//   nvme, host            6 + 12 = 18   12 + 12 = 24    4 + 14 = 18
//   host, host            0 + 12 = 12    0 + 12 = 12    0 + 14 = 14
// Example: split, all on NVMe: forward 2 + backward 2 + update 12 read (states 10, and hi once more), 12 written = 28.
// A unit whose weights stay in memory between its forward and its backward (the turn) saves one read of its weights:
// see WeightSchedule::kept_bytes().
Traffic traffic(const StateFormat& format, UpdateOrder order, Durability durability, Residency residency);

}  // namespace penstock
