// Weights that compute finds in the same place at all times, where it reads elsewhere than where tiles arrive: brought
// again when host memory has new ones.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/apart_memory.h"
#include "zero_infinity/memory/bringing.h"
#include "zero_infinity/memory/rank_gathering.h"
#include "zero_infinity/memory/residents.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace penstock::zero {

// Compute thread only.
class GatheredResidents {
   public:
    // Everything outlives it. Takes its memory, and brings nothing yet. `lane`: null for one rank.
    GatheredResidents(const ModelLayout& layout, const Residents& residents, Bringing& bringing, Device& device,
                      ApartMemory& memory, pool::PinnedPool& pool, Lane* lane);

    std::byte* group(std::uint32_t unit) const noexcept { return groups_[unit]; }  // null: is not among them
    bool has(store::TileId tile) const;                                            // of weights

    // Both: false where the device did not answer in time, and may be at host memory at any time.
    //
    // The unit's trainable weights are new in host memory: of several ranks they are on their way from now on. Compute
    // is not at it until renew(). Nothing for a unit that is not among them.
    [[nodiscard]] bool updated(std::uint32_t unit, std::chrono::nanoseconds timeout) const;
    enum class Renew : std::uint8_t {
        updated,  // trainable weights, of all that was updated
        all,      // frozen ones, too, and of all units
    };
    // Compute that is issued from now on finds them.
    [[nodiscard]] bool renew(Renew what, std::chrono::nanoseconds timeout) const;

   private:
    bool bring_all(std::chrono::nanoseconds timeout) const;

    const ModelLayout* layout_;
    const Residents* residents_;
    Bringing* bringing_;
    Device* device_;
    std::vector<std::byte*> groups_;        // by unit
    std::unique_ptr<RankGathering> ranks_;  // null: one
};

}  // namespace penstock::zero
