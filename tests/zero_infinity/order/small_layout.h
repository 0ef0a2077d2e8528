// A layout of units with one parameter each, for tests of decisions.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::testing {

inline zero::ModelLayout layout_of(const std::vector<std::int64_t>& numels,
                                   const std::vector<std::uint32_t>& resident = {},
                                   const std::vector<zero::UnitResidency>& residency = {}) {
    const zero::ParameterGroups optimizers = zero::make_adamw({});
    std::vector<zero::UnitSpec> units;
    for (const std::int64_t numel : numels) {
        zero::UnitSpec unit;
        unit.name = fmt::format("u{}", units.size());
        unit.parameters.push_back({.name = "weight", .shape = {numel}});
        unit.resident = std::find(resident.begin(), resident.end(), units.size()) != resident.end();
        units.push_back(std::move(unit));
    }
    return zero::ModelLayout({.units = units,
                              .format = zero::state_format(zero::split_codec(), optimizers.others()),
                              .optimizers = optimizers,
                              .tile_numel = 4096,
                              .partition = {},
                              .residency = {},
                              .unit_residency = residency});
}

}  // namespace penstock::testing
