// Tiles that stay in host memory between their uses. Durability and residency are independent: they are written
// through in each step that is to be committed.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/store/tensor_store.h"
#include "zero_infinity/layout/model_layout.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace penstock::zero {

// What an update does with the tiles that host memory holds.
enum class ResidentTiles : std::uint8_t {
    written,    // through to the store
    held_back,  // they stay in host memory alone, newer than the store, until a commit asks for them
};

// Where an update has its gradients from.
enum class GradientsFrom : std::uint8_t {
    memory,  // the caller has them
    spill,   // they come with the states, where the tile has a block of the spill
};

class Residents;
// Gives all tiles their bytes, of memory that is zero, where no store has them.
using FillResidents = std::function<void(const Residents&)>;

class Residents {
   public:
    // Takes the leases and reads the tiles, or has them filled: blocks. `fill` may be empty. REQUIRES: called on the
    // thread that owns the Io. Throws Error (storage), and what `fill` throws.
    Residents(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, const ModelLayout& layout,
              const FillResidents& fill);

    // Weights and frozen weights as ModelLayout::shard_tiles() lays them; null when weights are not resident.
    std::byte* group(std::uint32_t unit) const noexcept;
    // Of whatever object the tile is; null when it is not resident.
    std::byte* tile(store::TileId tile) const noexcept;

    // All tiles that are resident, from or to a store that has these objects: block. Written: so many bytes. REQUIRES
    // and throw as the constructor.
    void read(aio::Io& io, store::TensorStore& from) const;
    std::uint64_t write(aio::Io& io, store::TensorStore& to) const;

   private:
    template <typename Visit>
    void for_each_tile(Visit visit) const;  // (tile, its extent)

    const ModelLayout* layout_;
    std::vector<pool::Lease> groups_;  // by unit
    std::vector<pool::Lease> states_;
    std::vector<std::span<std::byte>> resident_;  // by object: its first tiles, or all of them
};

}  // namespace penstock::zero
