// What a machine gives to one session: all that a plan knows of the place where it will run.
#pragma once

#include "pinned_pool/budget.h"
#include "zero_infinity/device/device.h"

#include <cstdint>

namespace penstock::zero {

// A value, read once by whoever plans: equal rooms make equal plans.
struct MachineRoom {
    pool::MachineMemory host;        // that may be taken, and registered with a ring
    std::uint64_t device_bytes = 0;  // free in a device's own memory, where no budget was given for it
    unsigned cores = 1;              // that this process may compute on
    std::uint32_t sharing = 1;       // ranks that have this host memory together, this one among them

    // As it is now. Throws Error as free_device_bytes().
    static MachineRoom read(const DeviceOptions& device);
};

}  // namespace penstock::zero
