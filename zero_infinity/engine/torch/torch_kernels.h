// Torch's own kernels for the device that computes.
#pragma once

#include "zero_infinity/device/device.h"

namespace penstock::engine {

// Torch's CPU kernels are linked. Its CUDA kernels are a library of their own that registers itself when it is loaded;
// that takes about two seconds, so only a run on a GPU pays for it. From then on torch computes the same bits from the
// same inputs there, as it does on the CPU, for the whole process, and throws at an operation that it can only do
// otherwise: a model that needs one calls at::globalContext().setDeterministicAlgorithms(false, false) after opening.
// Throws Error (usage) when the library or something it needs is not there.
void load_torch_kernels(zero::DeviceKind kind);

}  // namespace penstock::engine
