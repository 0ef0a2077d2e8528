// Which units of a step are updated when, and in which order: that in which compute will need them, or has done with
// them. Pure.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/order/window_plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::zero {

// All units with something to train, each once: those that are resident by themselves first, then as the visits come,
// then what no visit names.
std::vector<std::uint32_t> in_order_of_visits(const ModelLayout& layout, std::span<const Visit> visits);
// The same, but as the visits leave them for good.
std::vector<std::uint32_t> in_order_of_leaving(const ModelLayout& layout, std::span<const Visit> visits);

// Those of UpdateOrder::within that are deferred, by unit: of what their updates move to and from NVMe about that
// share, spread evenly over the model. The first unit, which forward would begin by waiting for, and the last, whose
// update would come at the turn to backward in any case, only where the share is 1. Never those that are resident by
// themselves.
std::vector<bool> deferred_units(const ModelLayout& layout, double share);

// What the one or the other of them has.
std::vector<std::uint32_t> those_of(const std::vector<std::uint32_t>& units, const std::vector<bool>& wanted,
                                    bool value);

}  // namespace penstock::zero
