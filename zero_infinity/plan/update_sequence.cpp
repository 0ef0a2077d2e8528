#include "zero_infinity/plan/update_sequence.h"

#include <algorithm>

namespace penstock::zero {

std::vector<std::uint32_t> in_order_of_visits(const ModelLayout& layout, std::span<const Visit> visits) {
    std::vector<std::uint32_t> units;
    const auto add = [&](std::uint32_t unit) {
        if (layout.unit(unit).tile_count() > 0 && std::find(units.begin(), units.end(), unit) == units.end())
            units.push_back(unit);
    };
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.unit(unit).spec().resident) add(unit);
    for (const Visit& visit : visits) std::for_each(visit.units.begin(), visit.units.end(), add);
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) add(unit);
    return units;
}

std::vector<std::uint32_t> in_order_of_leaving(const ModelLayout& layout, std::span<const Visit> visits) {
    const std::vector<Visit> backwards(visits.rbegin(), visits.rend());
    std::vector<std::uint32_t> units = in_order_of_visits(layout, backwards);
    std::reverse(units.begin(), units.end());
    return units;
}

}  // namespace penstock::zero
