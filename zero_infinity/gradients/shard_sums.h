// The sums over all ranks, each rank's of its own shard: what the norm counts and an update works with.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/ranks/lane.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// Compute thread only. The layout and the lane outlive it; it ends before the lane's last calls may be at its memory
// only where the lane has ended. Every rank makes the same calls.
class ShardSums {
   public:
    // Takes its leases here. REQUIRES: as many ranks as the layout's.
    ShardSums(const ModelLayout& layout, PlaneType type, pool::PinnedPool& pool, Lane& lane);

    // Adds what each rank has summed of the unit by itself, in the order of the ranks: to nothing, or to what was added
    // since clear(). Posted: `whole`, the unit's range, belongs to the lane until wait().
    void add(std::uint32_t unit, std::span<const std::byte> whole);
    // Until the unit's sums are there, and what was added may be overwritten. Throws what ended the lane.
    void wait(std::uint32_t unit);

    // Nothing was added yet: of all units, or of these elements of a unit's range.
    void clear() noexcept;
    void clear(std::uint32_t unit, std::uint64_t first, std::uint64_t numel);

    // REQUIRES: wait().
    GradientView tile(UnitTile tile) const;
    // The part of a parameter that is in the shard; may be empty.
    GradientView part(ParameterId parameter) const;

   private:
    struct Unit {
        pool::Lease memory;
        bool empty = true;
        std::optional<Lane::Number> under_way;
    };
    GradientView view(std::uint32_t unit, std::uint64_t first, std::uint64_t numel) const;  // of the shard

    const ModelLayout* layout_;
    PlaneType type_;
    Lane* lane_;
    std::vector<Unit> units_;
};

}  // namespace penstock::zero
