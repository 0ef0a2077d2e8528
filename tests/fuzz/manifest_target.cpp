// store::decode(): never throws, and what it takes is possible, encodes to the same bytes, and has a layout without
// overlaps.
#include "aio/words/check.h"
#include "tests/fuzz/manifest_forge.h"

#include <algorithm>
#include <tuple>

namespace penstock::fuzz {
namespace {

// Device, offset, end.
using Range = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;

void check_extents(const store::Layout& layout) {
    constexpr std::uint32_t looked_at = 256;  // from both ends
    std::vector<Range> ranges;
    for (std::uint32_t device = 0; device < layout.device_count(); ++device) {
        PENSTOCK_CHECK(layout.device_bytes(device) <= store::max_device_bytes, "{} bytes on device {}",
                       layout.device_bytes(device), device);
    }
    for (std::uint32_t i = 0; i < layout.tile_count(); ++i) {
        if (i == looked_at && layout.tile_count() > 2 * looked_at) i = layout.tile_count() - looked_at;
        const store::TileId id = layout.tile(i);
        PENSTOCK_CHECK(layout.tile_index(id) == i, "tile {} has index {}", i, layout.tile_index(id));
        for (std::uint32_t slot = 0; slot < layout.geometry().slots; ++slot) {
            const store::Extent extent = layout.extent(id, slot);
            PENSTOCK_CHECK(extent.device < layout.device_count(), "tile {} on device {}", i, extent.device);
            PENSTOCK_CHECK(extent.bytes >= layout.tile_bytes(id) && layout.tile_bytes(id) > 0, "tile {} of {} bytes", i,
                           extent.bytes);
            PENSTOCK_CHECK((extent.offset_bytes | extent.bytes) % layout.granule_bytes() == 0, "tile {} at {}", i,
                           extent.offset_bytes);
            ranges.emplace_back(extent.device, extent.offset_bytes, extent.offset_bytes + extent.bytes);
            PENSTOCK_CHECK(std::get<2>(ranges.back()) <= layout.device_bytes(extent.device), "tile {} ends at {} of {}",
                           i, std::get<2>(ranges.back()), layout.device_bytes(extent.device));
        }
    }
    std::sort(ranges.begin(), ranges.end());
    for (std::size_t i = 1; i < ranges.size(); ++i) {
        const bool same_device = std::get<0>(ranges[i - 1]) == std::get<0>(ranges[i]);
        PENSTOCK_CHECK(!same_device || std::get<2>(ranges[i - 1]) <= std::get<1>(ranges[i]), "extents overlap at {}",
                       std::get<1>(ranges[i]));
    }
}

void run(std::span<const std::byte> input) {
    const store::DecodedManifest decoded = store::decode(input);
    PENSTOCK_CHECK(decoded.valid == decoded.problem.empty(), "valid {}: '{}'", decoded.valid, decoded.problem);
    if (!decoded.valid) return;
    const Bytes again = encoded(decoded.manifest);
    PENSTOCK_CHECK(again.size() <= input.size() && std::equal(again.begin(), again.end(), input.begin()),
                   "{} bytes decode and encode to others", again.size());
    PENSTOCK_CHECK(store::decode(again).manifest == decoded.manifest, "what was encoded decodes to something else");
    const bool shared = decoded.manifest.hashed_as == store::HashedAs::origin;
    PENSTOCK_CHECK(!shared || decoded.manifest.origin, "blocks of nobody");
    const std::uint64_t newest = shared ? decoded.manifest.origin->generation : decoded.manifest.generation;
    for (const store::TileRecord& tile : decoded.manifest.tiles) {
        PENSTOCK_CHECK(tile.slot < decoded.manifest.geometry.slots && tile.generation <= newest,
                       "generation {} in one of {}", tile.generation, newest);
        PENSTOCK_CHECK(tile.written || tile == store::TileRecord{}, "a tile that was never written has a record");
    }
    const store::Layout layout = layout_of(decoded.manifest);
    PENSTOCK_CHECK(layout.granule_bytes() >= 512, "a granule of {}", layout.granule_bytes());
    PENSTOCK_CHECK(layout.tile_count() == decoded.manifest.tiles.size(), "{} tiles", layout.tile_count());
    PENSTOCK_CHECK(manifest_capacity(layout) >= again.size(), "a place of {}", manifest_capacity(layout));
    check_extents(layout);
}

Bytes with_byte(Bytes bytes, std::size_t at, char value) {
    bytes.at(at) = static_cast<std::byte>(value);
    fix_hash(bytes);
    return bytes;
}

// Each breaks one rule of FORMAT.md under a right hash.
std::vector<Bytes> impossible_manifests() {
    const store::Manifest good = seed_manifests().back();
    const Bytes bytes = encoded(good);
    const std::size_t key = text_of(bytes).find("step");
    store::Manifest granule = good;
    granule.geometry.granule_bytes = 256;
    std::vector<Bytes> all = {with_byte(bytes, 8, 0), with_byte(bytes, 12, 1), with_byte(bytes, key, '~'),
                              encoded(granule)};
    for (const std::uint64_t length : {store::max_device_bytes, store::max_device_bytes + 1, ~std::uint64_t{0}}) {
        store::Manifest long_object = forged_manifest({{"a", 1, 1}}, 1, 4096);
        long_object.objects[0].bytes = long_object.objects[0].tile_bytes = length;
        all.push_back(encoded(long_object));
    }
    return all;
}

std::vector<Bytes> seeds() {
    std::vector<Bytes> all = impossible_manifests();
    for (const store::Manifest& manifest : seed_manifests()) all.push_back(encoded(manifest));
    return all;
}

}  // namespace

const FuzzTarget manifest_target = {.name = "manifest", .run = run, .mutate = mutate_manifest, .seeds = seeds};

}  // namespace penstock::fuzz
