// How the shards of all ranks come together where compute reads: gathered in host memory, and from there, where compute
// reads on a device, copied.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/ranks/lane.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::zero {

// Compute thread only. Every rank makes the same calls. Everything outlives it.
class RankGathering {
   public:
    // Takes gathering_places() of the pool.
    RankGathering(const ModelLayout& layout, pool::PinnedPool& pool, Device& device, Lane& lane);

    // Both throw what ended the lane. False: the device did not answer in time.
    //
    // Begins to gather a unit's weights of one kind from its shard, as ModelLayout::shard() lays it, to its place, as
    // gathered() does. Where there is no place on the way left, waits for an earlier one.
    [[nodiscard]] bool begin(std::uint32_t unit, Training training, const std::byte* shard, std::byte* place,
                             std::chrono::nanoseconds timeout);
    // Until all are there; compute that is issued from now on finds them.
    [[nodiscard]] bool finish(std::chrono::nanoseconds timeout);

   private:
    struct UnderWay {
        Lane::Number number = 0;
        std::byte* place = nullptr;  // where compute reads
        std::size_t bytes = 0;
        std::size_t way = 0;  // which of the places on the way
    };
    void land(const UnderWay& gathered);

    const ModelLayout* layout_;
    Device* device_;
    Lane* lane_;
    std::vector<pool::Lease> ways_;  // none: shards are gathered where compute reads
    std::vector<Ticket> copied_;     // by way: until when the last copy reads it
    std::size_t next_way_ = 0;
    std::vector<UnderWay> under_way_;  // in their order
    Ticket last_copy_;
};

}  // namespace penstock::zero
