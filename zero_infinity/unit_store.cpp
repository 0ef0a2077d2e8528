#include "zero_infinity/unit_store.h"

#include "aio/check.h"
#include "aio/error.h"

#include <algorithm>

namespace penstock {
namespace {

std::optional<std::uint32_t>& member_for(UnitObjects& objects, const std::string& name) {
    if (name.ends_with(".weights")) return objects.weights;
    if (name.ends_with(".states")) return objects.states;
    return objects.frozen;
}

UnitObjects find_unit(const TensorStore& store, const UnitLayout& unit, const StateFormat& format) {
    UnitObjects found;
    for (const ObjectSpec& wanted : unit.objects(format)) {
        const auto index = store.find(wanted.name);
        if (!index || store.layout().objects()[*index] != wanted)
            throw Error(
                ExitCode::storage,
                fmt::format("the store has {} object '{}' of {} bytes in tiles of {}: it was made for another model or "
                            "tile size; use another swap directory",
                            index ? "another" : "no", wanted.name, wanted.bytes, wanted.tile_bytes));
        member_for(found, wanted.name) = index;
    }
    return found;
}

void append_tiles(std::vector<GroupTile>& tiles, const TensorStore& store, std::uint32_t object,
                  std::uint64_t base_bytes) {
    std::uint64_t offset_bytes = base_bytes;
    for (std::uint32_t tile = 0; tile < store.layout().tile_count(object); ++tile) {
        const TileId id{object, tile};
        tiles.push_back({id, offset_bytes, store.extent_bytes(id)});
        offset_bytes += store.layout().tile_bytes(id);  // all but the last are whole granules: no gap
    }
}

}  // namespace

std::vector<UnitObjects> find_objects(const TensorStore& store, const std::vector<UnitLayout>& units,
                                      const StateFormat& format) {
    if (store.granule_bytes() != granule_bytes)
        throw Error(ExitCode::storage,
                    fmt::format("the file system asks for direct I/O in units of {} bytes, the engine lays "
                                "out memory in units of {}; use another file system",
                                store.granule_bytes(), granule_bytes));
    std::vector<UnitObjects> found;
    found.reserve(units.size());
    for (const UnitLayout& unit : units) found.push_back(find_unit(store, unit, format));
    return found;
}

std::uint64_t weights_bytes(const UnitLayout& unit, const StateFormat& format) {
    return whole_granules(unit.shard_numel() * format.weights_bytes());
}

std::uint64_t group_bytes(const UnitLayout& unit, const StateFormat& format) {
    return weights_bytes(unit, format) + whole_granules(unit.frozen_shard_numel() * format.weights_bytes());
}

std::vector<GroupTile> group_tiles(const UnitLayout& unit, const UnitObjects& objects, const TensorStore& store,
                                   const StateFormat& format) {
    std::vector<GroupTile> tiles;
    if (objects.weights) append_tiles(tiles, store, *objects.weights, 0);
    if (objects.frozen) append_tiles(tiles, store, *objects.frozen, weights_bytes(unit, format));
    return tiles;
}

}  // namespace penstock
