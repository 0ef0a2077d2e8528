// Gathers what a rig's rank has, and what the others would have, for they are not there: weights as they are expected.
// What of a rank's own part is wrong stays wrong.
#pragma once

#include "zero_infinity/memory/bringing.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::testing {

class RigGather final : public zero::Bringing {
   public:
    // Both outlive it.
    RigGather(const zero::ModelLayout& layout, zero::Device& device);

    std::vector<std::atomic<std::uint64_t>> updates;  // by unit: so many the other ranks have made of it

    bool apart() const noexcept override { return true; }
    zero::Ticket bring(std::uint32_t unit, std::byte* place, const std::byte* shard, zero::Ticket after) override;
    zero::Ticket bring_back(std::uint32_t unit, std::byte* shard, const std::byte* place, std::uint64_t bytes) override;

   private:
    void gather(std::uint32_t unit, std::byte* place, const std::byte* shard) const;

    const zero::ModelLayout& layout_;
    zero::Device& device_;
    std::vector<std::vector<std::byte>> gathered_;  // by unit, on its way to a device
};

}  // namespace penstock::testing
