#include "aio/words/error.h"
#include "zero_infinity/device/device.h"

namespace penstock::zero {
namespace {

[[noreturn]] void refuse() {
    throw Error(ExitCode::usage,
                "The device 'cuda' is not in this program: it was built without a CUDA toolkit. Build it with one "
                "(cmake -DPENSTOCK_CUDA=ON), or set the device to 'cpu'.");
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/) {
    refuse();
}

std::uint64_t free_cuda_bytes(const DeviceOptions& /*options*/) {
    refuse();
}

}  // namespace penstock::zero
