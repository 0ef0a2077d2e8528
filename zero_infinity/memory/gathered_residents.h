// Weights of units that are resident by themselves (UnitSpec::resident), where compute reads elsewhere than where tiles
// arrive: always there for it, and brought again when host memory has new ones.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/apart_memory.h"
#include "zero_infinity/memory/bringing.h"
#include "zero_infinity/memory/residents.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::zero {

// Compute thread only.
class GatheredResidents {
   public:
    // Everything outlives it. Takes its memory, and brings nothing yet.
    GatheredResidents(const ModelLayout& layout, const Residents& residents, Bringing& bringing, Device& device,
                      ApartMemory& memory);

    std::byte* group(std::uint32_t unit) const noexcept { return groups_[unit]; }  // null: is not among them
    bool has(store::TileId tile) const;                                            // of weights

    // Brings all of them; compute that is issued from now on finds them. False: the device did not answer in time, and
    // may be at host memory at any time.
    [[nodiscard]] bool renew(std::chrono::nanoseconds timeout) const;

   private:
    const ModelLayout* layout_;
    const Residents* residents_;
    Bringing* bringing_;
    Device* device_;
    std::vector<std::byte*> groups_;  // by unit
};

}  // namespace penstock::zero
