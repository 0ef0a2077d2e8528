#include "zero_infinity/residents.h"

#include "swap/blocking.h"

namespace penstock {
namespace {

std::uint64_t states_bytes(const UnitLayout& unit, const StateFormat& format) {
    for (const ObjectSpec& object : unit.objects(format))
        if (object.name == unit.spec().name + ".states") return whole_granules(object.bytes);
    return 0;
}

}  // namespace

std::uint64_t resident_weights_bytes(const std::vector<UnitLayout>& units, const StateFormat& format,
                                     Residency residency) {
    if (residency.weights != Tier::host) return 0;
    std::uint64_t bytes = 0;
    for (const UnitLayout& unit : units) bytes += group_bytes(unit, format);
    return bytes;
}

std::uint64_t resident_states_bytes(const std::vector<UnitLayout>& units, const StateFormat& format,
                                    Residency residency) {
    if (residency.states != Tier::host) return 0;
    std::uint64_t bytes = 0;
    for (const UnitLayout& unit : units) bytes += states_bytes(unit, format);
    return bytes;
}

Residents::Residents(Io& io, TensorStore& store, PinnedPool& pool, const std::vector<UnitLayout>& units,
                     const std::vector<UnitObjects>& objects, const StateFormat& format, Residency residency,
                     std::chrono::seconds deadline)
    : store_(&store), groups_(units.size()), states_(store.layout().objects().size()) {
    for (std::uint32_t unit = 0; unit < units.size(); ++unit) {
        const std::uint64_t bytes = group_bytes(units[unit], format);
        if (residency.weights == Tier::host && bytes > 0) {
            groups_[unit] = pool.acquire(pool.use(resident_weights_use), bytes);
            for (const GroupTile& part : group_tiles(units[unit], objects[unit], store, format))
                read_blocking(io, store, part.tile, groups_[unit].span().subspan(part.offset_bytes, part.bytes),
                              deadline);
        }
        if (residency.states == Tier::host && objects[unit].states) {
            const std::uint32_t object = *objects[unit].states;
            states_[object] = pool.acquire(pool.use(resident_states_use), states_bytes(units[unit], format));
            for (std::uint32_t tile = 0; tile < store.layout().tile_count(object); ++tile) {
                const TileId id{object, tile};
                read_blocking(io, store, id, {states(id), store.extent_bytes(id)}, deadline);
            }
        }
    }
}

std::byte* Residents::group(std::uint32_t unit) const noexcept {
    return groups_[unit].data();
}

std::byte* Residents::states(TileId tile) const noexcept {
    std::byte* base = states_[tile.object].data();
    return base == nullptr ? nullptr : base + tile.tile * store_->layout().objects()[tile.object].tile_bytes;
}

}  // namespace penstock
