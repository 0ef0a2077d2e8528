// The orders of updates: when a step's units are updated.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <cstdint>

namespace penstock::zero {

// The bits are the same. What a device with memory of its own computes with, and host memory holds, is updated beside
// compute (session/step_update.h): deferred ahead of the visits, within while the pass goes on.
enum class UpdateOrder : std::uint8_t {
    after_backward,  // all of them by update()
    // Each at the visit that first needs it: the NVMe moves states while compute goes on, and weights are read once for
    // both. A kill costs a finished step more: it is committed when the last of its units is updated, or settled.
    deferred,
    // Each when the last of its gradients has come, where it lies for backward, before there is a norm. The NVMe moves
    // states while backward goes on, and weights are not read for it. Where steps may be clipped, as if none were: a
    // step that is clipped after all is updated again, deferred, from what was committed before it. A share of the
    // units may be deferred in every step, so that forward has something to move, too.
    within,
};
constexpr auto words_of(UpdateOrder) noexcept {
    return std::array{Word{UpdateOrder::after_backward, "after_backward"}, Word{UpdateOrder::deferred, "deferred"},
                      Word{UpdateOrder::within, "within"}};
}

// Of one unit, whether a step leaves it to the next pass or not.
constexpr UpdateOrder order_of_unit(UpdateOrder order, bool deferred) noexcept {
    return order == UpdateOrder::within && deferred ? UpdateOrder::deferred : order;
}

}  // namespace penstock::zero
