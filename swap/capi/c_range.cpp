#include "swap/capi/c_range.h"

#include "swap/capi/c_error.h"

namespace penstock::store {

TileRange tiles_of(const Layout& layout, penstock_range range) {
    require(range.object < layout.objects().size(), "there is no object {}: the store has {}", range.object,
            layout.objects().size());
    const std::uint32_t tiles = layout.tile_count(range.object);
    const std::string& name = layout.objects()[range.object].name;
    require(range.first_tile < tiles, "object '{}' has no tile {}: it has {}", name, range.first_tile, tiles);
    const std::uint32_t left = tiles - range.first_tile;
    require(range.tile_count <= left, "object '{}' has no {} tiles from tile {} on: it has {}", name, range.tile_count,
            range.first_tile, left);
    return {
        .object = range.object, .first = range.first_tile, .count = range.tile_count == 0 ? left : range.tile_count};
}

std::uint64_t memory_bytes(const Layout& layout, const TileRange& range) {
    const ObjectSpec& object = layout.objects()[range.object];
    require(range.count == 1 || object.tile_bytes % layout.granule_bytes() == 0,
            "tiles of {} bytes, as in object '{}', are no multiple of the store's alignment of {}: they go one by one",
            object.tile_bytes, object.name, layout.granule_bytes());
    return (range.count - 1) * object.tile_bytes + layout.extent(range.tile(range.count - 1), 0).bytes;
}

std::string describe(const Layout& layout, TileId tile) {
    return fmt::format("tile {} of object '{}'", tile.tile, layout.objects()[tile.object].name);
}

}  // namespace penstock::store
