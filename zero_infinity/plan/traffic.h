// Bytes of NVMe traffic per parameter and step, as one function of the four things that decide them.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/tier.h"
#include "zero_infinity/order/update_order.h"

#include <cstdint>

namespace penstock::zero {

// How many steps lie between commits. Between them, and for ever in scratch, objects kept in host memory are not
// written.
struct Durability {
    std::uint64_t commit_steps = 1;  // 0: never
    static const Durability every_step;
    static const Durability scratch;
    bool commits_after(std::uint64_t step) const noexcept { return commit_steps != 0 && step % commit_steps == 0; }
    bool operator==(const Durability&) const = default;
};
inline constexpr Durability Durability::every_step{1};
inline constexpr Durability Durability::scratch{0};

struct Traffic {
    double read_bytes = 0;  // per trainable parameter and step, a mean over the steps of one commit
    double write_bytes = 0;
    double total() const noexcept { return read_bytes + write_bytes; }
};

// Durable every step, updated after backward; reads + writes in bytes (two moments):
//   weights, states on   split          plain_fp32     plain_16-bit   compact
//   nvme, nvme           16 + 12 = 28   20 + 12 = 32   16 + 14 = 30   9.125 + 5.125 = 14.25
//   host, nvme           10 + 12 = 22    8 + 12 = 20   12 + 14 = 26   3.125 + 5.125 =  8.25
//   nvme, host            6 + 12 = 18   12 + 12 = 24    4 + 14 = 18   6     + 5.125 = 11.125
//   host, host            0 + 12 = 12    0 + 12 = 12    0 + 14 = 14   0     + 5.125 =  5.125
// Example: split, all on NVMe: forward 2 + backward 2 + update 12 read (states 10, and hi once more), 12 written = 28.
// Deferred saves one of the reads of weights that come from NVMe: split 14 + 12 = 26, plain_fp32 16 + 12 = 28; within
// the update's, where it has one. Of within with a deferred share each unit moves what its own order says.
// Scratch saves the writes of what is in host memory: split with weights in host memory 10 + 10 = 20, compact 6.25.
// A unit whose weights stay in memory between its forward and its backward (the turn) saves one read of its weights:
// see WindowPlan.
// Gradients that leave for NVMe, of so many bytes, are written once and read once; those of within that leave
// (updates_at_once()) are read only where a speculation fails.
Traffic traffic(const StateFormat& format, Durability durability, Residency residency,
                UpdateOrder order = UpdateOrder::after_backward, double deferred_share = 0, double gradient_bytes = 0);
// What forward takes of the compute of a training pass: backward recomputes it and takes twice as long besides; or has
// its graph.
inline constexpr double forward_part_recomputed = 1.0 / 4;
inline constexpr double forward_part_kept = 1.0 / 3;
// The share of updates' bytes that is deferred where forward moves as large a part of a step's bytes as it takes of
// the compute. Example: split, all on NVMe, 1/4: forward moves 2 of 26 bytes, and updates 22 besides what backward
// reads; 6.5 = 2 + 0.205 × 22.
double balanced_share(const StateFormat& format, Durability durability, Residency residency, double forward_part);

// What a training step of one pass reads and writes, exactly, from the schedules and the objects; a commit's manifests
// are on top.
struct StepBytes {
    std::uint64_t read = 0;
    std::uint64_t write = 0;
    std::uint64_t resident_write = 0;                   // on top, in a step that commits: what host memory holds
    std::uint64_t further_read = 0;                     // on top, for each pass of a step beyond the first
    std::uint64_t further_write = 0;                    // likewise
    double mean(Durability durability) const noexcept;  // read and written over the steps of one commit
};

}  // namespace penstock::zero
