// How a unit's weights get from where its tiles arrive to where compute reads them.
#pragma once

#include "zero_infinity/device/device.h"
#include "zero_infinity/layout/model_layout.h"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace penstock::zero {

// Calls come from the driver's thread, and, of resident units, from compute's between passes. Its tickets are the
// device's.
class Bringing {
   public:
    virtual ~Bringing() = default;

    // Compute reads elsewhere than where tiles arrive: on a device, or where shards are gathered. All below are for
    // that.
    virtual bool apart() const noexcept = 0;
    // To the unit's place, as ModelLayout::gathered() lays it, from its shard, as ModelLayout::shard() does; after what
    // compute was at before that mark. Both belong to it until the ticket is reached.
    virtual Ticket bring(std::uint32_t unit, std::byte* place, const std::byte* shard, Ticket after) = 0;
    // The first bytes of the shard, back from what was brought.
    virtual Ticket bring_back(std::uint32_t unit, std::byte* shard, const std::byte* place, std::uint64_t bytes) = 0;
};

// Of one rank: none where the device shares host memory, else a copy. Of several, whose weights are gathered for good
// (memory/gathered_residents.h): nothing is brought for a visit. Both outlive it.
std::unique_ptr<Bringing> make_bringing(const ModelLayout& layout, Device& device);

}  // namespace penstock::zero
