// What a run of several ranks is told besides. Without effect where there is one.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/layout/model_layout.h"

#include <array>
#include <cstdint>

namespace penstock::zero {

// Where the passes of a step and the ranks meet in a sum of gradients. Decides bits where a step has several passes;
// and memory: whether a rank keeps its own sums of all units until the step ends, or of two.
enum class SumOrder : std::uint8_t {
    passes_first,  // each rank adds up its passes; then the ranks' sums are added: once a step
    ranks_first,   // each pass is added over the ranks, unit by unit as backward leaves them
};
constexpr auto words_of(SumOrder) noexcept {
    return std::array{Word{SumOrder::passes_first, "passes_first"}, Word{SumOrder::ranks_first, "ranks_first"}};
}

struct RankOptions {
    Gathered gathered = Gathered::for_good;
    SumOrder sum_order = SumOrder::passes_first;
    std::uint64_t area_bytes = std::uint64_t{64} << 20;  // for what comes from all ranks at once, the most
};

}  // namespace penstock::zero
