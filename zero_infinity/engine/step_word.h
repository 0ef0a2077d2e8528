// What a rank tells the others of each step, beside its gradients.
#pragma once

#include "zero_infinity/ranks/communicator.h"

#include <cstdint>

namespace penstock::engine {

struct StepWord {
    double loss = 0;
    std::uint32_t wish = 0;  // EngineOptions::wish
};

// All ranks call it, behind the norm, for which all have waited anyway. The mean of the losses, added in the order of
// the ranks, and the largest wish: the same on all.
StepWord of_all_ranks(zero::Communicator& ranks, const StepWord& own);

}  // namespace penstock::engine
