// How the compute of a test's client runs, chosen at link time: at once (compute_at_once.cpp), or on the CUDA runtime
// in host memory, which does things as late and as disorderly as events allow (compute_on_cuda.cpp).
#pragma once

#include "zero_infinity/device/device.h"

#include <functional>
#include <vector>

namespace penstock::testing {

// Before a test's first device, and after its last one, where something about the runtime's use may be wrong.
void begin_compute(unsigned seed);
void end_compute();
void issue(std::function<void()> kernel);
void finish_compute();  // all that was issued
// Of the devices that such compute reads.
std::vector<zero::DeviceKind> devices();

}  // namespace penstock::testing
