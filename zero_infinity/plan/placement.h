// Offsets for things that come and go at known times: pure arithmetic.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::zero {

// Needs `bytes` of contiguous memory at every moment of [first, last].
struct Stay {
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    std::uint64_t bytes = 0;
};

struct Placement {
    std::vector<std::uint64_t> offsets_bytes;  // one per stay, multiples of granule_bytes
    std::uint64_t window_bytes = 0;            // the end of the highest stay
};

// Stays share bytes only when one ends before the other begins (last < first). Deterministic.
//
// The smallest window is NP-hard to find (dynamic storage allocation, Garey and Johnson SR2). Here each stay in turn,
// in the order given, takes the lowest gap that is free for all its time. While the window is above the floor, the
// stay that sets its top is moved to the front of the order and all are placed again; the smallest window found is
// kept. On dense random cases of 7 and 8 stays that is the optimum in 97 and 96 of 100, and at most 1.25 times it
// (tests/zero_infinity/plan/placement_test.cpp compares with all orders).
Placement place(std::span<const Stay> stays);

// The most bytes that are needed at one moment: no placement has a smaller window.
std::uint64_t floor_bytes(std::span<const Stay> stays);

}  // namespace penstock::zero
