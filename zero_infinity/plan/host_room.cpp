#include "zero_infinity/plan/host_room.h"

namespace penstock::zero {

std::vector<Residency> fill_room(const ModelLayout& layout, std::uint64_t room_bytes) {
    std::vector<Residency> residency;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        residency.push_back({layout.weights_tier(unit), layout.states_tier(unit)});
    const auto keep = [&](Tier& tier, std::uint64_t bytes) {
        if (tier == Tier::host || bytes == 0 || bytes > room_bytes) return;
        tier = Tier::host;
        room_bytes -= bytes;
    };
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        keep(residency[unit].weights, layout.group_bytes(unit));
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        keep(residency[unit].states, layout.memory_bytes(layout.objects(unit).states));
    return residency;
}

}  // namespace penstock::zero
