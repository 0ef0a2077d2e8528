#include "zero_infinity/order/closing_order.h"

#include <algorithm>
#include <optional>

namespace penstock::zero {

std::vector<ClosingTurn> ClosingOrder::behind(std::span<const Visit> visits) const {
    struct Visited {
        std::size_t first, last;
    };
    std::vector<std::optional<Visited>> visited(closes_.size());
    std::vector<ClosingTurn> turns;
    std::size_t now = 0;
    for (const Visit& visit : visits)
        for (const std::uint32_t unit : visit.units) {
            ++now;
            if (visited.at(unit)) {
                visited[unit]->last = now;
                continue;
            }
            visited[unit] = {now, now};
            turns.push_back({.unit = unit});
        }
    std::ranges::reverse(turns);
    for (ClosingTurn& turn : turns)
        turn.before = static_cast<std::uint32_t>(std::ranges::count_if(
            turns, [&](const ClosingTurn& each) { return visited[each.unit]->first > visited[turn.unit]->last; }));
    for (auto unit = static_cast<std::uint32_t>(closes_.size()); unit-- > 0;)
        if (!visited[unit]) turns.push_back({unit, static_cast<std::uint32_t>(turns.size())});
    return turns;
}

void ClosingOrder::begin(std::span<const ClosingTurn> turns) {
    begun_ = true;
    order_.clear();
    closed_ = 0;
    std::vector<std::size_t> closing{0};  // of the first turns, so many close
    for (const ClosingTurn& turn : turns) {
        if (closes(turn.unit)) order_.push_back(turn.unit);
        closing.push_back(order_.size());
    }
    before_.assign(closes_.size(), 0);
    for (const ClosingTurn& turn : turns) before_[turn.unit] = closing.at(turn.before);
}

std::span<const std::uint32_t> ClosingOrder::up_to(std::size_t end) {
    const std::size_t first = closed_;
    closed_ = std::max(closed_, end);
    return std::span(order_).subspan(first, closed_ - first);
}

}  // namespace penstock::zero
