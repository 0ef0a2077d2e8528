#include "zero_infinity/driver/residents.h"

#include "swap/store/tiles_in_flight.h"
#include "zero_infinity/plan/memory_plan.h"

#include <algorithm>

namespace penstock::zero {
namespace {

// Reads that keep a device busy, however small tiles are; what of them is with it the Io decides.
constexpr std::size_t reads_max = 16;

}  // namespace

Residents::Residents(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, const ModelLayout& layout,
                     const FillResidents& fill)
    : layout_(&layout), groups_(layout.unit_count()), states_(layout.unit_count()), resident_(layout.objects().size()) {
    store::TilesInFlight reads(io, store, reads_max);
    const auto read = [&](store::TileId tile, std::span<std::byte> memory) {
        if (fill)
            std::ranges::fill(memory, std::byte{0});
        else
            reads.read(tile, memory);
    };
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t bytes = layout.group_bytes(unit);
        if (layout.weights_tier(unit) == Tier::host && bytes > 0) {
            groups_[unit] = pool.acquire(pool.use(resident_weights_use), bytes);
            for (const GroupTile& part : layout.group_tiles(unit)) {
                const std::span<std::byte> object = groups_[unit].span().subspan(part.offset_bytes);
                if (part.tile.tile == 0)
                    resident_[part.tile.object] = object.first(layout.memory_bytes(part.tile.object));
                read(part.tile, object.first(part.bytes));
            }
        }
        if (const std::uint64_t states_bytes = layout.states_bytes(unit, Tier::host); states_bytes > 0) {
            const std::uint32_t object = *layout.objects(unit).states;
            states_[unit] = pool.acquire(pool.use(resident_states_use), states_bytes);
            resident_[object] = states_[unit].span();
            for (store::TileId id{object, 0}; id.tile < layout.tile_count(object) && tile(id) != nullptr; ++id.tile)
                read(id, {tile(id), layout.extent_bytes(id)});
        }
    }
    reads.finish();
    if (fill) fill(*this);
}

std::byte* Residents::group(std::uint32_t unit) const noexcept {
    return groups_[unit].data();
}

std::byte* Residents::tile(store::TileId tile) const noexcept {
    const std::span<std::byte> object = resident_[tile.object];
    const std::uint64_t offset_bytes = layout_->offset_bytes(tile);
    return offset_bytes < object.size() ? object.data() + offset_bytes : nullptr;
}

}  // namespace penstock::zero
