// The means over all ranks, each rank's of its own shard: what the norm counts and an update works with.
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

    // Adds the mean of what each rank has summed of the unit by itself, added in the order of the ranks: to nothing, or
    // to what was added since clear(). Posted: `addend`, the unit's range, belongs to the lane until wait().
    void add(std::uint32_t unit, std::span<const std::byte> addend);
    // Until the unit's sums are there, and what was added may be overwritten. Throws what ended the lane.
    void wait(std::uint32_t unit);

    // The unit's range is whole in `range` on every rank, which belongs to the lane until wait(): posted; or, of a unit
    // that has no sum of any rank, zero. From then on this rank's shard is what lies there.
    void lay_out(std::uint32_t unit, std::span<std::byte> range);
    void lay_out_zeros(std::uint32_t unit, std::span<std::byte> range);
    bool is_laid_out(std::uint32_t unit) const { return !units_.at(unit).range.empty(); }
    // The shard is what lies there now. take_back(): and is here again, so that the range may have other bytes.
    void look(std::uint32_t unit);
    void take_back(std::uint32_t unit);

    // Nothing was added yet: of all units, or of these elements of a unit's range.
    void clear() noexcept;
    void clear(std::uint32_t unit, std::uint64_t first, std::uint64_t numel);

    // REQUIRES: wait(); look(), where the unit is laid out and its range has changed.
    GradientView tile(UnitTile tile) const;
    // The part of a parameter that is in the shard; may be empty.
    GradientView part(ParameterId parameter) const;

   private:
    struct Unit {
        pool::Lease memory;
        bool empty = true;
        std::span<std::byte> range;  // where it is laid out
        std::optional<Lane::Number> under_way;
    };
    std::span<std::byte> shard(std::uint32_t unit) const;
    GradientView view(std::uint32_t unit, std::uint64_t first, std::uint64_t numel) const;  // of the shard

    const ModelLayout* layout_;
    PlaneType type_;
    Lane* lane_;
    std::vector<Unit> units_;
};

}  // namespace penstock::zero
