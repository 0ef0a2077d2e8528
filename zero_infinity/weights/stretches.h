// Which elements of which parameters lie in a tile, and what memory takes one: pure arithmetic.
#pragma once

#include "zero_infinity/plan/unit.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::zero {

// What one tile holds of one parameter.
struct Stretch {
    std::size_t parameter = 0;  // index in the unit
    std::uint64_t first = 0;    // element of the parameter
    std::uint64_t offset = 0;   // element of the tile
    std::uint64_t count = 0;
};

// Calls visit(stretch) for each parameter that reaches into the first `numel` elements of a tile of the trainable or
// the frozen shard, in the order of the elements; padding is left out. Example: a norm of 768 and a matrix of 100 ×
// 100, tiles of 4096: tile 0 holds {0, 0, 0, 768} and {1, 0, 768, 3328}, tile 1 {1, 3328, 0, 4096}.
template <typename Visit>
void for_each_stretch(const UnitLayout& unit, Training training, std::uint32_t tile, std::uint64_t numel, Visit visit) {
    const std::uint64_t shard = training == Training::frozen ? unit.frozen_shard_first() : unit.shard_first();
    const std::uint64_t begin = shard + tile * unit.tile_numel();
    for (std::size_t parameter = 0; parameter < unit.spec().parameters.size(); ++parameter) {
        const ParameterPlace& place = unit.place(parameter);
        const std::uint64_t from = std::max(begin, place.first);
        const std::uint64_t until = std::min(begin + numel, place.first + place.numel);
        if (place.training == training && from < until)
            visit(Stretch{parameter, from - place.first, from - begin, until - from});
    }
}

// Elements of the largest tile of any unit, 1 at least.
inline std::uint64_t largest_tile(std::span<const UnitLayout> units) {
    std::uint64_t largest = 1;
    for (const UnitLayout& unit : units)
        largest =
            std::max(largest, std::min(unit.tile_numel(), std::max(unit.shard_numel(), unit.frozen_shard_numel())));
    return largest;
}

}  // namespace penstock::zero
