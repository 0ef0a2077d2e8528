#include "zero_infinity/memory/rank_gathering.h"

#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/rank_memory.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

RankGathering::RankGathering(const ModelLayout& layout, pool::PinnedPool& pool, Device& device, Lane& lane)
    : layout_(&layout), device_(&device), lane_(&lane) {
    const GatheringPlaces places = gathering_places(layout, !device.shares_host_memory());
    for (std::uint32_t way = 0; way < places.count; ++way)
        ways_.push_back(pool.acquire(pool.use(ranks_use), places.bytes));
    copied_.resize(ways_.size());
}

// The way that was given longest ago comes first: what it had is on the device, or is sent there now.
bool RankGathering::begin(std::uint32_t unit, Training training, const std::byte* shard, std::byte* place,
                          std::chrono::nanoseconds timeout) {
    const UnitLayout& of = layout_->unit(unit);
    const bool frozen = training == Training::frozen;
    const std::uint64_t element_bytes = bytes_of(of.weight_type(training, layout_->format()));
    const std::size_t own = (frozen ? of.frozen_shard_numel() : of.shard_numel()) * element_bytes;
    const std::size_t all = (frozen ? of.frozen_numel() : of.trainable_numel()) * element_bytes;
    if (all == 0) return true;
    if (frozen) {
        shard += layout_->shard(unit).frozen_offset_bytes;
        place += layout_->gathered(unit).frozen_offset_bytes;
    }
    UnderWay next{.place = place, .bytes = all};
    std::byte* to = place;
    if (!ways_.empty()) {
        next.way = std::exchange(next_way_, (next_way_ + 1) % ways_.size());
        const auto taken = std::find_if(under_way_.begin(), under_way_.end(),
                                        [&](const UnderWay& each) { return each.way == next.way; });
        if (taken != under_way_.end()) {
            land(*taken);
            under_way_.erase(taken);
        }
        if (!device_->wait(copied_[next.way], timeout)) return false;
        to = ways_[next.way].data();
    }
    next.number = lane_->post_gather(unit, {.shard = {shard, own}, .all = {to, all}}, Inputs::there);
    under_way_.push_back(next);
    return true;
}

void RankGathering::land(const UnderWay& gathered) {
    lane_->wait(gathered.number);
    if (ways_.empty()) return;
    last_copy_ = copied_[gathered.way] =
        device_->copy_in(gathered.place, ways_[gathered.way].data(), gathered.bytes, device_->compute_mark());
}

bool RankGathering::finish(std::chrono::nanoseconds timeout) {
    for (const UnderWay& each : under_way_) land(each);
    under_way_.clear();
    if (ways_.empty()) return true;
    if (!device_->wait(last_copy_, timeout)) return false;
    device_->compute_after(last_copy_);
    return true;
}

}  // namespace penstock::zero
