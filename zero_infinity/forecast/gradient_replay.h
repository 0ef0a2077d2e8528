// Gradients of a forecast that leave host memory in a pass, and come back: in virtual time.
#pragma once

#include "zero_infinity/forecast/virtual_device.h"
#include "zero_infinity/layout/model_layout.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>

namespace penstock::zero {

// Host memory has the gradients of two units: for a third one the older gives way.
class GradientReplay {
   public:
    using Reached = std::function<bool()>;
    using Wait = std::function<void(const Reached&)>;  // passes time until it is

    // `bytes`: by unit; empty: none leaves. What it is given outlives it. The device's transfers have the numbers from
    // `first_number` on, as many as there are units.
    GradientReplay(const ModelLayout& layout, std::span<const std::uint64_t> bytes, VirtualDevice& device,
                   std::uint64_t first_number, Wait wait);

    std::uint64_t bytes(std::uint32_t unit) const { return bytes_.empty() ? 0 : bytes_[unit]; }
    double bytes(UnitTile tile) const;  // its share of the unit's

    // `read`: there are sums of a pass before, which come back first.
    void bring(std::uint32_t unit, bool read);
    void write(std::uint32_t unit);

    bool has(std::uint64_t number) const noexcept {
        return number >= first_number_ && number < first_number_ + layout_.unit_count();
    }
    void ended(const VirtualTransfer& transfer);  // REQUIRES: has()

   private:
    std::uint64_t begin(Direction direction, std::uint32_t unit);

    // Constant after construction.
    const ModelLayout& layout_;
    std::span<const std::uint64_t> bytes_;
    VirtualDevice& device_;
    std::uint64_t first_number_;
    Wait wait_;

    // Where gradients are.
    std::deque<std::uint32_t> summed_;        // units whose gradients host memory has, of those that leave it
    std::deque<std::uint32_t> leaving_;       // whose are being written
    std::optional<std::uint32_t> returning_;  // whose are being read
};

}  // namespace penstock::zero
