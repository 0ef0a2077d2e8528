// In which order units' sums are added over the ranks while the pass that makes them still goes on. Pure.
//
// Backward comes to units in the reverse order of their visits. So what a unit gets in a pass is whole once an addend
// comes to one that was visited for the last time before the unit was for the first time; a unit that got none until
// then counts as one that gets none. What comes after all is left for the pass's end.
#pragma once

#include "zero_infinity/order/window_plan.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace penstock::zero {

// A unit's place in that order. It goes through a gather.
struct ClosingTurn {
    std::uint32_t unit = 0;
    std::uint32_t before = 0;  // so many turns are over once an addend comes to it
    bool operator==(const ClosingTurn&) const = default;
};

class ClosingOrder {
   public:
    // `closes`, by unit: whether it may be closed before the pass ends.
    explicit ClosingOrder(std::vector<bool> closes) : closes_(std::move(closes)) {}

    // All units, as backward comes to them behind these visits. Those that none names come last, by falling number.
    std::vector<ClosingTurn> behind(std::span<const Visit> visits) const;

    // A pass begins to bring addends. REQUIRES: each unit once.
    void begin(std::span<const ClosingTurn> turns);
    bool begun() const noexcept { return begun_; }
    void end() noexcept { begun_ = false; }

    bool closes(std::uint32_t unit) const { return closes_.at(unit); }
    // An addend comes to it: the units that are closed by that, in order. Valid until begin(). REQUIRES: begun().
    std::span<const std::uint32_t> come_to(std::uint32_t unit) { return up_to(before_.at(unit)); }
    std::span<const std::uint32_t> rest() { return up_to(order_.size()); }  // no addend comes any more

   private:
    std::span<const std::uint32_t> up_to(std::size_t end);

    std::vector<bool> closes_;
    bool begun_ = false;
    std::vector<std::uint32_t> order_;  // of those that close
    std::vector<std::size_t> before_;   // by unit: so many of order_
    std::size_t closed_ = 0;            // so many of them are
};

}  // namespace penstock::zero
