#include "zero_infinity/plan/rank_memory.h"

#include "pinned_pool/budget.h"

#include <algorithm>

namespace penstock::zero {

std::uint64_t shard_sums_bytes(const ModelLayout& layout, std::uint32_t unit, PlaneType type) {
    if (layout.partition().ranks == 1 || layout.purpose() == Purpose::forwards) return 0;
    return pool::whole_granules(layout.unit(unit).shard_numel() * bytes_of(type));
}

std::uint64_t shard_sums_bytes(const ModelLayout& layout, PlaneType type) {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) bytes += shard_sums_bytes(layout, unit, type);
    return bytes;
}

std::uint64_t rank_piece_bytes(const ModelLayout& layout, PlaneType type, std::uint64_t area_bytes) {
    if (layout.partition().ranks == 1) return 0;
    std::uint64_t longest = pool::granule_bytes;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        longest = std::max({longest, layout.shard(unit).bytes, shard_sums_bytes(layout, unit, type)});
    return std::min(longest, pool::whole_granules(area_bytes / layout.partition().ranks));
}

GatheringPlaces gathering_places(const ModelLayout& layout, bool device_has_memory) {
    if (layout.partition().ranks == 1 || !device_has_memory) return {};
    GatheringPlaces places;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        if (layout.gathered(unit).bytes == 0) continue;
        places.count = std::min(places.count + 1, 2U);
        places.bytes = std::max(places.bytes, layout.gathered(unit).bytes);
    }
    return places;
}

}  // namespace penstock::zero
