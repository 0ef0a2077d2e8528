#include "zero_infinity/engine/torch/tensor_view.h"

#include "aio/words/check.h"

#include <ATen/ATen.h>

namespace penstock::engine {

at::ScalarType scalar_type(zero::PlaneType type) {
    switch (type) {
        case zero::PlaneType::bf16:
            return at::kBFloat16;
        case zero::PlaneType::fp16:
            return at::kHalf;
        case zero::PlaneType::fp32:
            return at::kFloat;
        default:
            break;
    }
    PENSTOCK_CHECK(false, "compute has no type for plane type {}", word_of(type));
}

at::Device torch_device(const zero::Device& device) {
    if (device.kind() != zero::DeviceKind::cuda) return at::Device(at::kCPU);
    return {at::kCUDA, static_cast<at::DeviceIndex>(device.index())};
}

at::Tensor view_of(std::byte* data, const std::vector<std::int64_t>& shape, zero::PlaneType type,
                   const zero::Device& device) {
    // Told where the memory is, torch does not ask the driver about the pointer.
    const at::Device where = torch_device(device);
    return at::for_blob(data, shape)
        .options(at::TensorOptions().dtype(scalar_type(type)).device(where))
        .target_device(where)
        .make_tensor();
}

}  // namespace penstock::engine
