// The ways in which steps are updated that differ: an order of updates and what else decides it.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/plan/core_options.h"

#include <array>
#include <cstdint>
#include <optional>

namespace penstock::zero {

enum class UpdateWay : std::uint8_t {
    after_backward,
    deferred,
    within,       // for good
    speculative,  // within, and again where a step is clipped after all
    balanced,     // some units within, speculative where that is allowed, the others deferred
};
constexpr auto words_of(UpdateWay) noexcept {
    return std::array{Word{UpdateWay::after_backward, "after_backward"}, Word{UpdateWay::deferred, "deferred"},
                      Word{UpdateWay::within, "within"}, Word{UpdateWay::speculative, "speculative"},
                      Word{UpdateWay::balanced, "balanced"}};
}
inline constexpr std::array update_ways{UpdateWay::after_backward, UpdateWay::deferred, UpdateWay::within,
                                        UpdateWay::speculative, UpdateWay::balanced};
constexpr bool is_within_backward(UpdateWay way) noexcept {
    return way == UpdateWay::within || way == UpdateWay::speculative || way == UpdateWay::balanced;
}
constexpr bool may_defer(UpdateWay way) noexcept {
    return way == UpdateWay::deferred || way == UpdateWay::speculative || way == UpdateWay::balanced;
}

// REQUIRES: when steps are committed, and where weights and states are, is filled in. `share`: of balanced.
inline void update_by(UpdateWay way, CoreOptions& options, std::optional<double> share = {}) {
    if (way == UpdateWay::after_backward) options.update_order = UpdateOrder::after_backward;
    if (way == UpdateWay::deferred) options.update_order = UpdateOrder::deferred;
    if (is_within_backward(way)) options.update_order = UpdateOrder::within;
    options.deferred_share = way == UpdateWay::balanced ? share : 0;
    options.clips = way == UpdateWay::speculative || way == UpdateWay::balanced;
    if (way == UpdateWay::balanced) options.clips = refusal_of_order(options).empty();
}

}  // namespace penstock::zero
