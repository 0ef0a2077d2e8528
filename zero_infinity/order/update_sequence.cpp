#include "zero_infinity/order/update_sequence.h"

#include <algorithm>
#include <iterator>

namespace penstock::zero {

std::vector<std::uint32_t> in_order_of_visits(const ModelLayout& layout, std::span<const Visit> visits) {
    std::vector<std::uint32_t> units;
    const auto add = [&](std::uint32_t unit) {
        if (layout.unit(unit).tile_count() > 0 && std::find(units.begin(), units.end(), unit) == units.end())
            units.push_back(unit);
    };
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.stays(unit)) add(unit);
    for (const Visit& visit : visits) std::for_each(visit.units.begin(), visit.units.end(), add);
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) add(unit);
    return units;
}

namespace {

double moved_by_update(const ModelLayout& layout, std::uint32_t unit) {
    const std::uint64_t weights = layout.memory_bytes(layout.objects(unit).weights);
    return static_cast<double>(2 * layout.states_bytes(unit, Tier::nvme) +
                               (layout.weights_tier(unit) == Tier::nvme ? weights : 0));
}

}  // namespace

std::vector<std::uint32_t> in_order_of_leaving(const ModelLayout& layout, std::span<const Visit> visits) {
    const std::vector<Visit> backwards(visits.rbegin(), visits.rend());
    std::vector<std::uint32_t> units = in_order_of_visits(layout, backwards);
    std::reverse(units.begin(), units.end());
    return units;
}

std::vector<bool> deferred_units(const ModelLayout& layout, double share) {
    std::vector<std::uint32_t> updated;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        if (layout.unit(unit).tile_count() > 0 && !layout.stays(unit)) updated.push_back(unit);
    std::vector<bool> deferred(layout.unit_count());
    double owed = 0;
    for (const std::uint32_t unit : updated) {
        const double bytes = moved_by_update(layout, unit);
        owed += share * bytes;
        const bool at_an_end = unit == updated.front() || unit == updated.back();
        deferred[unit] = share >= 1 || (!at_an_end && bytes > 0 && owed >= bytes / 2);
        if (deferred[unit]) owed -= bytes;
    }
    return deferred;
}

std::vector<std::uint32_t> those_of(const std::vector<std::uint32_t>& units, const std::vector<bool>& wanted,
                                    bool value) {
    std::vector<std::uint32_t> found;
    std::copy_if(units.begin(), units.end(), std::back_inserter(found),
                 [&](std::uint32_t unit) { return wanted[unit] == value; });
    return found;
}

}  // namespace penstock::zero
