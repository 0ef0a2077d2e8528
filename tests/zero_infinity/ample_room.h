// A machine that has enough of everything, as a plan knows it: the same on every machine that runs the test.
#pragma once

#include "zero_infinity/plan/machine_room.h"

namespace penstock::testing {

inline zero::MachineRoom ample_room() {
    return {.host = {.available_bytes = 1ULL << 50, .limited_by = "a test"}, .device_bytes = 1ULL << 40, .cores = 2};
}

}  // namespace penstock::testing
