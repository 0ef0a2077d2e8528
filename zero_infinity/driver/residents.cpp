#include "zero_infinity/driver/residents.h"

#include "swap/store/blocking.h"
#include "zero_infinity/plan/memory_plan.h"

namespace penstock::zero {

Residents::Residents(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, const ModelLayout& layout)
    : layout_(&layout),
      groups_(layout.unit_count()),
      states_(layout.objects().size()),
      tiles_(layout.objects().size()) {
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t bytes = layout.group_bytes(unit);
        if (layout.weights_tier(unit) == Tier::host && bytes > 0) {
            groups_[unit] = pool.acquire(pool.use(resident_weights_use), bytes);
            for (const GroupTile& part : layout.group_tiles(unit)) {
                read_blocking(io, store, part.tile, groups_[unit].span().subspan(part.offset_bytes, part.bytes));
                if (part.tile.tile == 0) tiles_[part.tile.object] = groups_[unit].data() + part.offset_bytes;
            }
        }
        if (layout.states_tier(unit) == Tier::host && layout.objects(unit).states) {
            const std::uint32_t object = *layout.objects(unit).states;
            states_[object] = pool.acquire(pool.use(resident_states_use), layout.memory_bytes(object));
            tiles_[object] = states_[object].data();
            for (std::uint32_t tile = 0; tile < layout.tile_count(object); ++tile) {
                const store::TileId id{object, tile};
                read_blocking(io, store, id, {states(id), layout.extent_bytes(id)});
            }
        }
    }
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
