// What must be the same on all ranks before one of them opens anything.
#pragma once

#include "zero_infinity/ranks/communicator.h"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::zero {

// "memory.host_budget", "16 GiB". Names are each there once; the same values may stand in another order on each rank.
struct AgreedValue {
    std::string name;
    std::string value;
};

// One rank's, from where it runs.
struct AgreedValues {
    std::string host;
    std::vector<AgreedValue> values;
};

// "rank 3 (worker-2) differs: torch 2.8.0, the others have 2.11.0": the ranks whose value fewer have are told, by rank.
// Empty: all are the same.
std::string disagreement(std::span<const AgreedValues> of_ranks);

// All ranks call it at once. A gather of digests where all are the same; the values themselves only where they are not.
// Throws Error (usage) with the same words on all ranks, and what the communicator throws. `what`: as all_gather() has
// it.
void agree(Communicator& communicator, const AgreedValues& own, std::string_view what = "what all must have alike");

}  // namespace penstock::zero
