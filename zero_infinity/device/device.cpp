#include "zero_infinity/device/device.h"

#include "aio/words/check.h"

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

}  // namespace penstock::zero
