// When a drive's write cache ran out, from the course of its rate. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace penstock::bench {

struct RateSample {
    double seconds = 0;       // how long it took; positive
    std::uint64_t bytes = 0;  // that were written in that time
};

// The index of the first sample of the lower level; nothing when the rate did not fall. It has fallen when two levels
// explain the samples much better than one (the split with the least squared error leaves at most half of the error of
// one level), the second is below 0.8 of the first, and each has at least 4 samples.
std::optional<std::size_t> find_fall(const std::vector<RateSample>& samples);

struct SustainedRate {
    double bytes_per_second = 0;
    std::optional<std::uint64_t> cache_bytes;  // written before the rate fell
};

// `first` are fresh blocks, `second` the same blocks overwritten at once afterwards. A first write costs the file
// system more than an overwrite, so the rate is that of the overwriting, after its fall if it fell; the cache may have
// run out in either. REQUIRES: samples in `second`.
SustainedRate sustained_rate(const std::vector<RateSample>& first, const std::vector<RateSample>& second);

}  // namespace penstock::bench
