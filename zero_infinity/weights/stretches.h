// Which elements of which parameters lie in a tile, and what memory takes one: pure arithmetic.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/weights/weight_source.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace penstock::zero {

// What one tile holds of one parameter.
struct Stretch {
    std::size_t parameter = 0;  // index in the unit
    std::uint64_t first = 0;    // element of the parameter
    std::uint64_t offset = 0;   // element of the tile
    std::uint64_t count = 0;
};

// Calls visit(stretch) for each parameter that reaches into the first `numel` elements of a tile of a rank's trainable
// or frozen shard, in the order of the elements; padding is left out. Example: a norm of 768 and a matrix of 100 ×
// 100, tiles of 4096: tile 0 holds {0, 0, 0, 768} and {1, 0, 768, 3328}, tile 1 {1, 3328, 0, 4096}.
template <typename Visit>
void for_each_stretch(const UnitLayout& unit, std::uint32_t rank, Training training, std::uint32_t tile,
                      std::uint64_t numel, Visit visit) {
    const std::uint64_t shard = training == Training::frozen ? unit.frozen_shard_numel() : unit.shard_numel();
    const std::uint64_t begin = rank * shard + tile * unit.tile_numel();
    for (std::size_t parameter = 0; parameter < unit.spec().parameters.size(); ++parameter) {
        const ParameterPlace& place = unit.place(parameter);
        const std::uint64_t from = std::max(begin, place.first);
        const std::uint64_t until = std::min(begin + numel, place.first + place.numel);
        if (place.training == training && from < until)
            visit(Stretch{parameter, from - place.first, from - begin, until - from});
    }
}

using WantedParameters = std::function<bool(const NamedParameter& parameter)>;  // empty: all

inline std::vector<Stretch> wanted_stretches(const UnitLayout& unit, std::uint32_t rank, Training training,
                                             std::uint32_t tile, std::uint64_t numel, const WantedParameters& wanted) {
    std::vector<Stretch> found;
    for_each_stretch(unit, rank, training, tile, numel, [&](const Stretch& stretch) {
        if (!wanted || wanted({unit.spec(), unit.spec().parameters[stretch.parameter]})) found.push_back(stretch);
    });
    return found;
}

// Calls work.trainable(unit, tile) and work.frozen(unit, tile): unit by unit, the trainable tiles before the frozen.
template <typename Work>
void for_each_tile(const ModelLayout& layout, Work& work) {
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const UnitLayout& of = layout.unit(unit);
        for (std::uint32_t tile = 0; tile < of.tile_count(); ++tile) work.trainable(unit, tile);
        for (std::uint32_t tile = 0; tile < of.frozen_tile_count(); ++tile) work.frozen(unit, tile);
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
