#include "zero_infinity/plan/host_room.h"

#include <algorithm>

namespace penstock::zero {

namespace {

// What may be kept: a unit's weights, or its states.
struct Keepable {
    std::uint32_t unit = 0;
    bool weights = false;
    std::uint64_t bytes = 0;
    std::uint64_t worth = 0;  // of keeping them
};

// What is read in a step and need not be, in bytes. Where updates go on beside compute, a first unit's states count for
// more: nobody computes while they are read, as its update ends a backward, or begins a forward.
std::uint64_t worth_of_states(std::uint64_t bytes, std::uint64_t unit, std::uint64_t units, UpdateOrder order) {
    if (order == UpdateOrder::after_backward) return bytes;
    return bytes + bytes / (4 * units) * 3 * (units - unit);
}

// Weights first, in order.
std::vector<Keepable> keepables(const ModelLayout& layout, UpdateOrder order) {
    std::vector<Keepable> all;
    const std::uint64_t units = layout.unit_count();
    for (std::uint32_t unit = 0; unit < units; ++unit) {
        if (layout.weights_tier(unit) != Tier::nvme) continue;
        const std::uint64_t bytes = layout.group_bytes(unit);
        all.push_back({unit, true, bytes, 2 * bytes});
    }
    for (std::uint32_t unit = 0; unit < units; ++unit) {
        if (layout.states_tier(unit) != Tier::nvme) continue;
        const std::uint64_t bytes = layout.memory_bytes(layout.objects(unit).states);
        all.push_back({unit, false, bytes, worth_of_states(bytes, unit, units, order)});
    }
    all.erase(std::remove_if(all.begin(), all.end(), [](const Keepable& each) { return each.bytes == 0; }), all.end());
    return all;
}

class Choice {
   public:
    Choice(const std::vector<Keepable>& all, std::uint64_t room_bytes)
        : all_(&all), kept_(all.size()), room_bytes_(room_bytes) {}

    void keep(std::size_t item) {
        kept_[item] = true;
        room_bytes_ -= (*all_)[item].bytes;
        worth_ += (*all_)[item].worth;
    }
    // In order, what still has room.
    void fill() {
        for (std::size_t item = 0; item < all_->size(); ++item)
            if (!kept_[item] && (*all_)[item].bytes <= room_bytes_) keep(item);
    }
    bool kept(std::size_t item) const { return kept_[item]; }
    std::uint64_t worth() const noexcept { return worth_; }

   private:
    const std::vector<Keepable>* all_;
    std::vector<bool> kept_;
    std::uint64_t room_bytes_;
    std::uint64_t worth_ = 0;
};

// The knapsack that is worth most, of a room in so many parts, each item rounded up to whole ones (Bellman, 1957).
Choice best_of_parts(const std::vector<Keepable>& all, std::uint64_t room_bytes) {
    constexpr std::uint64_t parts = 4096;
    const std::uint64_t part_bytes = room_bytes / parts + 1;
    const std::uint64_t room = room_bytes / part_bytes;
    const auto parts_of = [&](std::size_t item) { return (all[item].bytes + part_bytes - 1) / part_bytes; };
    std::vector<std::uint64_t> worth(room + 1);
    std::vector<std::vector<bool>> taken(all.size(), std::vector<bool>(room + 1));
    for (std::size_t item = 0; item < all.size(); ++item)
        for (std::uint64_t left = room; left >= parts_of(item); --left) {
            const std::uint64_t with = worth[left - parts_of(item)] + all[item].worth;
            if (with <= worth[left]) continue;
            worth[left] = with;
            taken[item][left] = true;
        }
    Choice choice(all, room_bytes);
    std::uint64_t left = room;
    for (std::size_t item = all.size(); item-- > 0;) {
        if (!taken[item][left]) continue;
        choice.keep(item);
        left -= parts_of(item);
    }
    choice.fill();
    return choice;
}

}  // namespace

std::vector<Residency> fill_room(const ModelLayout& layout, std::uint64_t room_bytes, UpdateOrder order) {
    const std::vector<Keepable> all = keepables(layout, order);
    Choice choice(all, room_bytes);
    choice.fill();
    if (const Choice other = best_of_parts(all, room_bytes); other.worth() > choice.worth()) choice = other;

    std::vector<Residency> residency;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        residency.push_back({layout.weights_tier(unit), layout.states_tier(unit)});
    for (std::size_t item = 0; item < all.size(); ++item) {
        if (!choice.kept(item)) continue;
        Residency& unit = residency[all[item].unit];
        (all[item].weights ? unit.weights : unit.states) = Tier::host;
    }
    return residency;
}

}  // namespace penstock::zero
