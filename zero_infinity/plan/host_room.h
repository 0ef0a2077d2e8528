// What stays in host memory because the budget has room for it. Pure.
//
// A step reads weights twice or more, and states once: weights first, of whole units, as compute reads them; then
// states, tile by tile. The choice stands for the whole run: in a scan that repeats itself, what was used last is what
// is needed last, so a cache that follows use (LRU) would keep nothing that helps, and this one saves reads in
// proportion to its bytes.
#pragma once

#include "zero_infinity/layout/model_layout.h"

#include <cstdint>
#include <vector>

namespace penstock::zero {

// By unit, for ModelLayoutSpec::unit_residency: what `layout` has on NVMe and fits into `room_bytes` is in host memory.
std::vector<UnitResidency> fill_room(const ModelLayout& layout, std::uint64_t room_bytes);

}  // namespace penstock::zero
