// A contiguous piece of one rank's shard as fp32 arrays: what an optimizer updates.
#pragma once

#include <cstddef>

namespace penstock {

// All arrays have `count` elements and do not overlap.
struct UpdateSpan {
    float* master = nullptr;
    float* moments[2] = {nullptr, nullptr};  // as many as Optimizer::moments(); initial_moment() before the first step
    const float* gradient = nullptr;         // unscaled and clipped
    std::size_t count = 0;
};

}  // namespace penstock
