// How whole steps are updated, as the bench names it.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/order/update_order.h"

#include <array>
#include <cstdint>

namespace penstock::bench {

enum class StepWay : std::uint8_t {
    after_backward,
    deferred,
    within,
    balanced,  // within, and a share of the units deferred
};
constexpr auto words_of(StepWay) noexcept {
    return std::array{Word{StepWay::after_backward, "after_backward"}, Word{StepWay::deferred, "deferred"},
                      Word{StepWay::within, "within"}, Word{StepWay::balanced, "balanced"}};
}
constexpr zero::UpdateOrder order_of(StepWay way) noexcept {
    if (way == StepWay::after_backward) return zero::UpdateOrder::after_backward;
    return way == StepWay::deferred ? zero::UpdateOrder::deferred : zero::UpdateOrder::within;
}

}  // namespace penstock::bench
