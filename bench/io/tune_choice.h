// Which block and how many bytes in flight to use. Pure.
#pragma once

#include <cstdint>
#include <vector>

namespace penstock::bench {

struct TunePoint {
    std::uint32_t block_bytes = 0;
    std::uint64_t in_flight_bytes = 0;  // at least a block
    double read_rate = 0;               // medians, in any unit; positive
    double write_rate = 0;
};

struct TuneChoice {
    std::uint32_t block_bytes = 0;
    std::uint64_t read_in_flight_bytes = 0;
    std::uint64_t write_in_flight_bytes = 0;
    double read_rate = 0;
    double write_rate = 0;
};

inline constexpr double good_enough = 0.97;  // of the best rate of all points: what is above is not worth its latency

// The smallest bytes in flight that are good enough, for reads and for writes; the block is one for both, so it is the
// one that needs the fewest bytes in flight for the two together, and of equals the smallest. Where no block is good
// enough for both, the one whose worse half is nearest to the best. REQUIRES: points.
TuneChoice choose_point(const std::vector<TunePoint>& points);

}  // namespace penstock::bench
