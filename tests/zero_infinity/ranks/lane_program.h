// A lane with memory of its own, and random programs for it, over whatever transports.
#pragma once

#include "zero_infinity/ranks/lane.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::testing {

struct RankLane {
    static constexpr std::size_t piece_bytes = 64;
    RankLane(zero::Transport& bulk, zero::Transport& control)
        : area(bulk.ranks() * piece_bytes),
          lane(bulk, control, area, {.units = {"embedding", "blocks.0", "blocks.1"}, .piece_bytes = piece_bytes}) {}
    std::vector<std::byte> area;
    zero::Lane lane;
};

// One call of a program, which all ranks draw from the same seed.
struct LaneStep {
    enum class Kind : std::uint8_t { gather, reduce, small } kind;
    std::uint32_t unit;
    std::size_t numel;  // of a part
    zero::SumStart start;
    std::uint64_t seed;
};

std::vector<LaneStep> lane_program(std::uint64_t seed);
// One rank's part: posts the steps, and says what is ready in an order of its own, which the seed and its rank give.
// Throws where a result is not that of the loop over the ranks, and what the lane throws.
void run_lane_program(zero::Transport& bulk, zero::Transport& control, const std::vector<LaneStep>& steps,
                      std::uint64_t seed);

}  // namespace penstock::testing
