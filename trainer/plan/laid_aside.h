// What a step lays aside between forward and backward under memory.activation_budget, known beforehand.
#pragma once

#include "trainer/config/config.h"
#include "zero_infinity/forecast/shelf_replay.h"

#include <cstddef>

namespace penstock::trainer {

// As engine::Tape does: the inputs of all units but the first, which are the data, and the last, whose backward follows
// at once. Nothing without that budget, or where all graphs are kept. Where graphs are kept as far as a budget goes,
// only a step says how far that is: as if none were.
zero::LaidAside laid_aside_by(const TrainConfig& config);

// Of a step, to the byte. Throws Error (does_not_fit) where the input of a unit is larger than the budget.
zero::ShelfBytes away_bytes_of(const TrainConfig& config);

}  // namespace penstock::trainer
