// The snapshots that a run makes of itself: their names, and the oldest that may go.
#pragma once

#include "swap/directory/snapshot_list.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::trainer {

// "step-100". Only snapshots of such names are ever removed by retention.
std::string step_name(std::uint64_t step);

// The finished step-NUMBER snapshots of the store `of` that are more than `count`, oldest first: by the generation
// that they are of, since a run that went back comes to lower steps in higher ones.
std::vector<store::ListedSnapshot> beyond_retention(const std::vector<store::ListedSnapshot>& snapshots,
                                                    const store::StoreUuid& of, std::uint64_t count);

// The step-NUMBER snapshots of the job whose copies never ended: a stop or a kill leaves them, and nobody can use them.
std::vector<store::ListedSnapshot> left_unfinished(const std::vector<store::ListedSnapshot>& snapshots,
                                                   const std::string& job);

// Removes the step-NUMBER directories that have nothing in them, or nothing but a lock file without all of its words
// that nobody holds, as a kill or a power cut leaves one in the instants after it was made; returns how many. What
// cannot be looked at stays.
int remove_empty_snapshots(const std::string& folder);

}  // namespace penstock::trainer
