// What is timed of the arithmetic on host memory: passes over arrays that are larger than the caches.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/optimizer/optimizer.h"
#include "zero_infinity/threads/workers.h"

#include <cstdint>
#include <memory>

namespace penstock::bench {

// Owns its arrays, in huge pages, touched and filled. One thread calls; the workers are the caller's.
class MemoryWork {
   public:
    virtual ~MemoryWork() = default;
    virtual void step(zero::Workers& workers) = 0;  // one pass over all elements
    // What a step reads and writes of its arrays, each once. What the processor fetches beside that (the line that is
    // about to be written, where it was not read) is not counted, as in STREAM.
    virtual std::uint64_t bytes_of_step() const noexcept = 0;
};

// Workers take pieces of so many elements, so each `numel` is a multiple of it (checked).
inline constexpr std::uint64_t work_piece_numel = 65536;

// a = b + s * c of fp32: 12 bytes per element, as STREAM counts.
std::unique_ptr<MemoryWork> make_triad(std::uint64_t numel);
// b = b + s * c: 12 bytes per element, and no more than these are moved.
std::unique_ptr<MemoryWork> make_triad_in_place(std::uint64_t numel);
// The optimizer alone on fp32: parameters and moments read and written, gradients read; AdamW 28 bytes per element.
std::unique_ptr<MemoryWork> make_plain_update(std::unique_ptr<zero::Optimizer> optimizer, std::uint64_t numel);
// update_tile(): decode, update, encode. Weights and states read and written, gradients read.
std::unique_ptr<MemoryWork> make_tile_update(const zero::Codec& codec, zero::PlaneType gradient,
                                             std::unique_ptr<zero::Optimizer> optimizer, std::uint64_t numel);

}  // namespace penstock::bench
