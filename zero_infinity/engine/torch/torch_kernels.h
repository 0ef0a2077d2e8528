// Torch's own kernels for the device that computes.
#pragma once

#include "zero_infinity/device/device.h"

namespace penstock::engine {

// Torch's CPU kernels are linked. Its CUDA kernels are a library of their own that registers itself when it is loaded;
// that takes about two seconds, so only a run on a GPU pays for it. How torch computes there is the process's to say:
// left alone, some of its kernels add up in any order, and the same inputs have other bits each time.
// Throws Error (usage) when the library or something it needs is not there.
void load_torch_kernels(zero::DeviceKind kind);

}  // namespace penstock::engine
