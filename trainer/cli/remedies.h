// What this program's tools can do about a store that is not what was written.
#pragma once

#include "swap/directory/remedy.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// What the commands that are named are about, as the user gave it.
struct StoreNames {
    std::vector<std::string> directories;  // of the store, in their order
    std::string snapshots = {};            // folder of the kept ones; empty: "kept" in the first directory
};
// Name `penstock ckpt` and the snapshots.
store::SharedRemedies remedies_of_store(StoreNames names);
// Of one that is being scrubbed: that is not advised again.
store::SharedRemedies remedies_of_scrub(StoreNames names);
// Of a kept snapshot, which can be done without.
store::SharedRemedies remedies_of_snapshot();

}  // namespace penstock::trainer
