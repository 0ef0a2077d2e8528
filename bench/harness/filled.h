// Memory to compute on.
#pragma once

#include "pinned_pool/region.h"

#include <cstdint>

namespace penstock::bench {

// Huge pages where they are given; not read for the first time, and neither subnormal nor equal everywhere, as fp32 and
// as bf16: about a hundredth.
inline pool::Region filled(std::uint64_t bytes) {
    constexpr std::uint16_t about_a_hundredth = 0x3c23;  // as bf16 and, with any lower half, as fp32
    pool::Region region(bytes, 1, pool::Registration::none);
    auto* values = reinterpret_cast<std::uint16_t*>(region.data());
    for (std::uint64_t i = 0; i < region.bytes() / 2; ++i)
        values[i] = static_cast<std::uint16_t>(about_a_hundredth + i % 61);
    return region;
}

}  // namespace penstock::bench
