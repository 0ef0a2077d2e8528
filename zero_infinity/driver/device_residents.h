// Weights of resident units in the memory of a device: always there for compute, and copied again when host memory has
// new ones.
#pragma once

#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/residents.h"
#include "zero_infinity/layout/model_layout.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::zero {

// Compute thread only.
class DeviceResidents {
   public:
    // Everything outlives it. Allocates on a device with memory of its own, and copies nothing yet.
    DeviceResidents(const ModelLayout& layout, const Residents& residents, Device& device);

    std::byte* group(std::uint32_t unit) const noexcept { return groups_[unit]; }  // null: is not among them
    bool has(store::TileId tile) const;                                            // of weights

    // Copies all of them; compute that is issued from now on finds them. False: the device did not answer in time, and
    // may be at host memory at any time.
    [[nodiscard]] bool copy(std::chrono::nanoseconds timeout) const;

   private:
    const ModelLayout* layout_;
    const Residents* residents_;
    Device* device_;
    std::vector<std::byte*> groups_;  // by unit
};

}  // namespace penstock::zero
