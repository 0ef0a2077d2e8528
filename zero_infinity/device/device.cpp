#include "zero_infinity/device/device.h"

#include "aio/words/check.h"
#include "aio/words/error.h"

#include <fmt/format.h>

namespace penstock::zero {

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
    switch (options.kind) {
        case DeviceKind::cpu:
            return make_cpu_device();
        case DeviceKind::emulated:
            return make_emulated_device(options);
        case DeviceKind::cuda:
            return make_cuda_device(options);
    }
    PENSTOCK_CHECK(false, "device kind {}", static_cast<int>(options.kind));
}

std::uint64_t free_device_bytes(const DeviceOptions& options) {
    if (options.kind == DeviceKind::cuda) return free_cuda_bytes(options);
    throw Error(ExitCode::usage, fmt::format("the device '{}' has as much memory as it is given: give it a budget",
                                             word_of(options.kind)));
}

}  // namespace penstock::zero
