// Which tiles a C program means, and how they lie in its memory: arithmetic on a layout.
#pragma once

#include "swap/capi/penstock.h"
#include "swap/format/layout.h"

#include <cstdint>
#include <string>

namespace penstock::store {

struct TileRange {
    std::uint32_t object = 0;
    std::uint32_t first = 0;
    std::uint32_t count = 0;  // > 0, but for what is no range

    TileId tile(std::uint32_t index) const noexcept { return {.object = object, .tile = first + index}; }
};

// Throws Refusal (usage) when there are no such tiles.
TileRange tiles_of(const Layout& layout, penstock_range range);
// One tile after the other, the last rounded up to the granule. Throws Refusal (usage) where tiles would have gaps
// between them.
std::uint64_t memory_bytes(const Layout& layout, const TileRange& range);
// "tile 3 of object 'weights'"
std::string describe(const Layout& layout, TileId tile);

}  // namespace penstock::store
