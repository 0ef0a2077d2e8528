// Which share of a store's tiles each of its devices gets.
#pragma once

#include "swap/format/layout.h"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::store {

// Small integers in proportion to the devices' bandwidths (any one unit), for Geometry::shares: a round of at most 64
// tiles (or as many as there are devices), as short as it can be with the last device to finish about as early as in
// any. A device far slower than the others still gets one tile of a round. REQUIRES: 1 to max_device_count bandwidths,
// each above zero and finite.
std::vector<std::uint16_t> stripe_shares(std::span<const double> bandwidths);

}  // namespace penstock::store
