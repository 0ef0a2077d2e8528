#include "zero_infinity/plan/machine_room.h"

#include "zero_infinity/threads/usable_cores.h"

namespace penstock::zero {

MachineRoom MachineRoom::read(const DeviceOptions& device) {
    const bool asked_for = device.kind != DeviceKind::cpu && device.budget_bytes == 0;
    return {.host = pool::MachineMemory::read(),
            .device_bytes = asked_for ? free_device_bytes(device) : 0,
            .cores = UsableCores::read().count};
}

}  // namespace penstock::zero
