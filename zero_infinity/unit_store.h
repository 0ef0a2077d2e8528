// Which objects of a store hold a unit, and how a unit's weights lie in one piece of memory.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/tensor_store.h"
#include "zero_infinity/unit.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace penstock {

// Indices into Layout::objects(); absent where the unit has no such bytes.
struct UnitObjects {
    std::optional<std::uint32_t> weights;
    std::optional<std::uint32_t> states;
    std::optional<std::uint32_t> frozen;
};

// Throws Error (storage) when the store lacks an object of a unit or has one of another size: it was made for another
// model.
std::vector<UnitObjects> find_objects(const TensorStore& store, const std::vector<UnitLayout>& units,
                                      const StateFormat& format);

constexpr std::uint64_t whole_granules(std::uint64_t bytes) noexcept {
    return (bytes + granule_bytes - 1) / granule_bytes * granule_bytes;
}

// A unit's group in memory: its weights' tiles one after the other, then its frozen tiles; each object rounded up to
// granules.
std::uint64_t weights_bytes(const UnitLayout& unit, const StateFormat& format);  // of the first part
std::uint64_t group_bytes(const UnitLayout& unit, const StateFormat& format);    // of both

// One tile of a group: which one, and where in the group it lies.
struct GroupTile {
    TileId tile;
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;  // of its extent
};
std::vector<GroupTile> group_tiles(const UnitLayout& unit, const UnitObjects& objects, const TensorStore& store,
                                   const StateFormat& format);

}  // namespace penstock
