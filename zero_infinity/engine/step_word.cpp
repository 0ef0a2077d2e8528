#include "zero_infinity/engine/step_word.h"

#include <algorithm>

namespace penstock::engine {

StepWord of_all_ranks(zero::Communicator& ranks, const StepWord& own) {
    if (ranks.ranks() == 1) return own;
    StepWord all;
    for (const StepWord& each : zero::gathered(ranks, "the loss", own)) {
        all.loss += each.loss;
        all.wish = std::max(all.wish, each.wish);
    }
    all.loss /= ranks.ranks();
    return all;
}

}  // namespace penstock::engine
