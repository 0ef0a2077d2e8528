#include "zero_infinity/memory/residents.h"

#include "swap/store/tiles_in_flight.h"
#include "zero_infinity/plan/memory_plan.h"

namespace penstock::zero {
namespace {

// Transfers that keep a device busy, however small tiles are; what of them is with it the Io decides.
constexpr std::size_t in_flight_max = 16;

}  // namespace

Residents::Residents(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, const ModelLayout& layout,
                     const FillResidents& fill)
    : layout_(&layout), groups_(layout.unit_count()), states_(layout.unit_count()), resident_(layout.objects().size()) {
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const std::uint64_t bytes = layout.shard(unit).bytes;
        if (layout.weights_tier(unit) == Tier::host && bytes > 0) {
            groups_[unit] = pool.acquire(pool.use(resident_weights_use), bytes);
            for (const GroupTile& part : layout.shard_tiles(unit)) {
                const std::span<std::byte> object = groups_[unit].span().subspan(part.offset_bytes);
                if (part.tile.tile == 0)
                    resident_[part.tile.object] = object.first(layout.memory_bytes(part.tile.object));
            }
        }
        if (const std::uint64_t states_bytes = layout.states_bytes(unit, Tier::host); states_bytes > 0) {
            states_[unit] = pool.acquire(pool.use(resident_states_use), states_bytes);
            resident_[*layout.objects(unit).states] = states_[unit].span();
        }
    }
    if (fill)
        fill(*this);
    else
        read(io, store);
}

void Residents::read(aio::Io& io, store::TensorStore& from) const {
    store::TilesInFlight reads(io, from, in_flight_max);
    for_each_tile([&](store::TileId tile, std::span<std::byte> extent) { reads.read(tile, extent); });
    reads.finish();
}

std::uint64_t Residents::write(aio::Io& io, store::TensorStore& to) const {
    store::TilesInFlight writes(io, to, in_flight_max);
    std::uint64_t bytes = 0;
    for_each_tile([&](store::TileId tile, std::span<std::byte> extent) {
        writes.write(tile, extent);
        bytes += extent.size();
    });
    writes.finish();
    return bytes;
}

template <typename Visit>
void Residents::for_each_tile(Visit visit) const {
    for (std::uint32_t object = 0; object < resident_.size(); ++object)
        for (store::TileId id{object, 0}; id.tile < layout_->tile_count(object); ++id.tile) {
            std::byte* const data = tile(id);
            if (data == nullptr) break;
            visit(id, std::span(data, layout_->extent_bytes(id)));
        }
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
