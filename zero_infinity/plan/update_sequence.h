// In which order the units of a step are updated: that in which compute will need them, or has done with them. Pure.
#pragma once

#include "zero_infinity/plan/model_layout.h"
#include "zero_infinity/plan/window_plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::zero {

// All units with something to train, each once: those that are resident by themselves first, then as the visits come,
// then what no visit names.
std::vector<std::uint32_t> in_order_of_visits(const ModelLayout& layout, std::span<const Visit> visits);
// The same, but as the visits leave them for good.
std::vector<std::uint32_t> in_order_of_leaving(const ModelLayout& layout, std::span<const Visit> visits);

}  // namespace penstock::zero
