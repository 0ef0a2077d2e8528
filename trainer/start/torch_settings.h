// What torch is told of how to compute, and what is said of that.
#pragma once

#include "trainer/config/config.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// Compute thread, before torch computes on the device. For the whole process, as all of torch's settings are; what
// torch does by itself it is not told. On a GPU torch throws at an operation that it can only do in any order, where
// `deterministic` is asked for: a GPT has none.
void tell_torch(const ComputeOptions& options, zero::DeviceKind device);

// What a user may not expect of these settings on this device: a line each.
std::vector<std::string> notes_of_compute(const TrainConfig& config);

}  // namespace penstock::trainer
