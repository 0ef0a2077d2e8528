// The orders of updates: when a step's units are updated.
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <cstdint>

namespace penstock::zero {

// The bits are the same.
enum class UpdateOrder : std::uint8_t {
    after_backward,  // all of them by update()
    // Each at the visit that first needs it: the NVMe moves states while compute goes on, and weights are read once for
    // both. A kill costs a finished step more: it is committed when the last of its units is updated, or settled.
    deferred,
    // Each when the last of its gradients has come, where it lies for backward, before there is a norm: for steps
    // without clipping. The NVMe moves states while backward goes on, and weights are not read for it.
    in_backward,
    // The same with clipping: as if nothing were clipped, and where the norm says otherwise the step is updated again
    // from what was committed before it, deferred, as is a step that nobody speculates on. For steps that are all
    // committed, with weights and states on NVMe.
    speculative,
    // Some units within backward, as in_backward or speculative does, and the others deferred, so that forward and
    // backward each have as much to move as they compute. Which ones the plan says: deferred_units(). A step that is
    // not updated within backward is deferred as a whole.
    balanced,
};
constexpr auto words_of(UpdateOrder) noexcept {
    return std::array{Word{UpdateOrder::after_backward, "after_backward"}, Word{UpdateOrder::deferred, "deferred"},
                      Word{UpdateOrder::in_backward, "in_backward"}, Word{UpdateOrder::speculative, "speculative"},
                      Word{UpdateOrder::balanced, "balanced"}};
}

// Steps that are not updated within backward.
constexpr bool may_defer(UpdateOrder order) noexcept {
    return order == UpdateOrder::deferred || order == UpdateOrder::speculative || order == UpdateOrder::balanced;
}
constexpr bool is_within_backward(UpdateOrder order) noexcept {
    return order == UpdateOrder::in_backward || order == UpdateOrder::speculative || order == UpdateOrder::balanced;
}
// Of one unit, whose order of a balanced step is one of these two.
constexpr UpdateOrder order_of_unit(UpdateOrder order, bool deferred) noexcept {
    if (order != UpdateOrder::balanced) return order;
    return deferred ? UpdateOrder::deferred : UpdateOrder::in_backward;
}

}  // namespace penstock::zero
