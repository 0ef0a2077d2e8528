#include "tests/zero_infinity/driver/rig_gather.h"

#include "tests/zero_infinity/driver/driver_rig.h"

#include <algorithm>
#include <cstring>

namespace penstock::testing {
namespace {

constexpr std::uint64_t weight_bytes = 2;  // split_codec's

// A plane of all ranks: expected, but for the own part, which is as the shard has it.
void fill(std::byte* plane, std::uint32_t unit, std::uint64_t numel, std::uint64_t updates) {
    for (std::uint64_t index = 0; index < numel; ++index) {
        const auto hi = zero::split_master(DriverRig::expected(unit, index, updates)).hi;
        std::memcpy(plane + weight_bytes * index, &hi, weight_bytes);
    }
}

}  // namespace

RigGather::RigGather(const zero::ModelLayout& layout, zero::Device& device)
    : updates(layout.unit_count()), layout_(layout), device_(device), gathered_(layout.unit_count()) {
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        gathered_[unit].resize(layout.gathered(unit).bytes);
}

void RigGather::gather(std::uint32_t unit, std::byte* place, const std::byte* shard) const {
    const zero::UnitLayout& all = layout_.unit(unit);
    std::byte* frozen = place + layout_.gathered(unit).frozen_offset_bytes;
    fill(place, unit, all.trainable_numel(), updates[unit]);
    fill(frozen, unit, all.frozen_numel(), 0);
    std::memcpy(place + weight_bytes * all.shard_first(), shard, weight_bytes * all.shard_numel());
    std::memcpy(frozen + weight_bytes * all.frozen_shard_first(), shard + layout_.shard(unit).frozen_offset_bytes,
                weight_bytes * all.frozen_shard_numel());
}

zero::Ticket RigGather::bring(std::uint32_t unit, std::byte* place, const std::byte* shard, zero::Ticket after) {
    if (device_.shares_host_memory()) {
        gather(unit, place, shard);
        return {};
    }
    gather(unit, gathered_[unit].data(), shard);
    return device_.copy_in(place, gathered_[unit].data(), gathered_[unit].size(), after);
}

zero::Ticket RigGather::bring_back(std::uint32_t unit, std::byte* shard, const std::byte* place, std::uint64_t bytes) {
    const std::uint64_t first = weight_bytes * layout_.unit(unit).shard_first();
    const std::uint64_t least = std::min(bytes, layout_.gathered(unit).bytes - first);  // the last granule is not whole
    if (!device_.shares_host_memory()) return device_.copy_out(shard, place + first, least);
    std::memcpy(shard, place + first, least);
    return {};
}

}  // namespace penstock::testing
