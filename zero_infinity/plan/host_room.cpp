#include "zero_infinity/plan/host_room.h"

#include <cstddef>

namespace penstock::zero {
namespace {

using Chosen = std::vector<bool>;  // by unit

std::uint64_t sum_of(const std::vector<std::uint64_t>& bytes, const Chosen& chosen) {
    std::uint64_t sum = 0;
    for (std::size_t unit = 0; unit < bytes.size(); ++unit) sum += chosen[unit] ? bytes[unit] : 0;
    return sum;
}

// One after the other, what still has room.
void fill_in_order(const std::vector<std::uint64_t>& bytes, std::uint64_t room_bytes, Chosen& chosen) {
    std::uint64_t left = room_bytes - sum_of(bytes, chosen);
    for (std::size_t unit = 0; unit < bytes.size(); ++unit) {
        if (chosen[unit] || bytes[unit] == 0 || bytes[unit] > left) continue;
        chosen[unit] = true;
        left -= bytes[unit];
    }
}

// The largest sum of a room in so many parts, each unit rounded up to whole ones (Bellman's knapsack, 1957).
Chosen fill_by_parts(const std::vector<std::uint64_t>& bytes, std::uint64_t room_bytes) {
    constexpr std::uint64_t parts = 4096;
    const std::uint64_t part_bytes = room_bytes / parts + 1;
    const std::uint64_t room = room_bytes / part_bytes;
    const auto parts_of = [&](std::size_t unit) { return (bytes[unit] + part_bytes - 1) / part_bytes; };
    std::vector<std::uint64_t> best(room + 1);
    std::vector<std::vector<bool>> taken(bytes.size(), std::vector<bool>(room + 1));
    for (std::size_t unit = 0; unit < bytes.size(); ++unit)
        for (std::uint64_t left = room; bytes[unit] > 0 && left >= parts_of(unit); --left) {
            const std::uint64_t with = best[left - parts_of(unit)] + bytes[unit];
            if (with <= best[left]) continue;
            best[left] = with;
            taken[unit][left] = true;
        }
    Chosen chosen(bytes.size());
    std::uint64_t left = room;
    for (std::size_t unit = bytes.size(); unit-- > 0;) {
        if (!taken[unit][left]) continue;
        chosen[unit] = true;
        left -= parts_of(unit);
    }
    fill_in_order(bytes, room_bytes, chosen);
    return chosen;
}

// What streams of each unit, and may be kept.
std::vector<std::uint64_t> streamed_weights(const ModelLayout& layout) {
    std::vector<std::uint64_t> bytes;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        bytes.push_back(layout.weights_tier(unit) == Tier::nvme ? layout.shard(unit).bytes : 0);
    return bytes;
}

}  // namespace

std::vector<UnitResidency> fill_room(const ModelLayout& layout, std::uint64_t room_bytes) {
    const std::vector<std::uint64_t> weights = streamed_weights(layout);
    Chosen chosen(layout.unit_count());
    fill_in_order(weights, room_bytes, chosen);
    if (const Chosen other = fill_by_parts(weights, room_bytes); sum_of(weights, other) > sum_of(weights, chosen))
        chosen = other;
    std::uint64_t left = room_bytes - sum_of(weights, chosen);

    std::vector<UnitResidency> residency;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        residency.push_back(layout.residency(unit));
        if (chosen[unit]) residency[unit].weights = Tier::host;
    }
    // First units' first: nobody computes while they are read, as their update ends a backward, or begins a forward.
    for (const UnitTile& tile : layout.tiles()) {
        const auto& states = layout.objects(tile.unit).states;
        std::uint32_t& kept = residency[tile.unit].state_tiles;
        if (!states || tile.tile != kept || layout.extent_bytes({*states, tile.tile}) > left) continue;
        left -= layout.extent_bytes({*states, tile.tile});
        ++kept;
    }
    return residency;
}

}  // namespace penstock::zero
