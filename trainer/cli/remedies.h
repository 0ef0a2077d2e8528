// What this program's tools can do about a store that is not what was written.
#pragma once

#include "swap/directory/remedy.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// Name `penstock ckpt` and the snapshots, which lie in the store's first directory unless another folder was given.
// `directories` are the store's, as the user gave them, in their order.
store::SharedRemedies remedies_of_store(std::vector<std::string> directories);
// Of one that is being scrubbed: that is not advised again.
store::SharedRemedies remedies_of_scrub(std::vector<std::string> directories);
// Of a kept snapshot, which can be done without.
store::SharedRemedies remedies_of_snapshot();

}  // namespace penstock::trainer
