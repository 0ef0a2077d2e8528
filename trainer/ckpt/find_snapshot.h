// A kept snapshot by what a person calls it: one meaning, whoever asks.
#pragma once

#include "trainer/ckpt/snapshot_folder.h"

#include <string>

namespace penstock::trainer {

// `name` is a path (with a '/'), a snapshot's name in `folder`, or a step: "6" is step-6, or else the newest snapshot
// there that is of step 6, whatever its name. Returns the directory. Throws Error (usage) when there is nothing, with
// the names that there are.
std::string find_snapshot(const SnapshotFolder& folder, const std::string& name);

}  // namespace penstock::trainer
