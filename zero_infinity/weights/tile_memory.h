// Memory for one tile of a model outside of the pool, and the conversion of frozen weights: what filling, reading out
// and writing in share.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "pinned_pool/region.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/update.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace penstock::zero {

// For the largest tile of the layout: as the store has it, and in fp32.
class TileMemory {
   public:
    explicit TileMemory(const ModelLayout& layout);
    static std::uint64_t bytes_for(const ModelLayout& layout);

    TileView view(std::uint64_t numel) noexcept { return {region_->data(), region_->data() + weights_bytes_, numel}; }
    std::byte* frozen() noexcept { return region_->data(); }
    std::vector<float>& values() noexcept { return values_; }
    // Calls transfer(tile, memory) with a part of this memory, which is never given back where that throws: a stuck
    // device may still be at it.
    template <typename Transfer>
    void move(const Transfer& transfer, store::TileId tile, std::span<std::byte> part) {
        try {
            transfer(tile, part);
        } catch (...) {
            leave(std::move(region_));
            throw;
        }
    }

   private:
    static void leave(std::unique_ptr<pool::Region> region) noexcept;

    std::vector<float> values_;
    std::uint64_t weights_bytes_;
    std::unique_ptr<pool::Region> region_;
};

// Frozen weights of a type that was asked for: to[i] = type(from[i]), to nearest even; u8: the nearest of 0 … 255.
void encode_frozen(const float* from, PlaneType type, std::byte* to, std::uint64_t count) noexcept;
void decode_frozen(const std::byte* from, PlaneType type, float* to, std::uint64_t count) noexcept;

}  // namespace penstock::zero
