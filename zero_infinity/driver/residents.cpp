#include "zero_infinity/driver/residents.h"

#include "swap/store/tiles_in_flight.h"
#include "zero_infinity/plan/memory_plan.h"

namespace penstock::zero {
namespace {

// Reads that keep a device busy, however small tiles are; what of them is with it the Io decides.
constexpr std::size_t reads_max = 16;

}  // namespace

Residents::Residents(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, const ModelLayout& layout)
    : layout_(&layout),
      groups_(layout.unit_count()),
      states_(layout.objects().size()),
      tiles_(layout.objects().size()) {
    store::TilesInFlight reads(io, store, reads_max);
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t bytes = layout.group_bytes(unit);
        if (layout.weights_tier(unit) == Tier::host && bytes > 0) {
            groups_[unit] = pool.acquire(pool.use(resident_weights_use), bytes);
            for (const GroupTile& part : layout.group_tiles(unit)) {
                reads.read(part.tile, groups_[unit].span().subspan(part.offset_bytes, part.bytes));
                if (part.tile.tile == 0) tiles_[part.tile.object] = groups_[unit].data() + part.offset_bytes;
            }
        }
        if (layout.states_tier(unit) == Tier::host && layout.objects(unit).states) {
            const std::uint32_t object = *layout.objects(unit).states;
            states_[object] = pool.acquire(pool.use(resident_states_use), layout.memory_bytes(object));
            tiles_[object] = states_[object].data();
            for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile) {
                const store::TileId id{object, tile};
                reads.read(id, {states(id), layout.extent_bytes(id)});
            }
        }
    }
    reads.finish();
}

std::byte* Residents::group(std::uint32_t unit) const noexcept {
    return groups_[unit].data();
}

std::byte* Residents::states(store::TileId tile) const noexcept {
    return states_[tile.object].data() == nullptr ? nullptr : Residents::tile(tile);
}

std::byte* Residents::tile(store::TileId tile) const noexcept {
    std::byte* base = tiles_[tile.object];
    return base == nullptr ? nullptr : base + layout_->offset_bytes(tile);
}

}  // namespace penstock::zero
