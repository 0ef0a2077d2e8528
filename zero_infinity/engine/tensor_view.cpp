#include "zero_infinity/engine/tensor_view.h"

#include "aio/check.h"

#include <ATen/ATen.h>

namespace penstock {

at::ScalarType scalar_type(PlaneType type) {
    switch (type) {
        case PlaneType::bf16:
            return at::kBFloat16;
        case PlaneType::fp16:
            return at::kHalf;
        case PlaneType::fp32:
            return at::kFloat;
        default:
            break;
    }
    PENSTOCK_CHECK(false, "compute has no type for plane type {}", to_string(type));
}

at::Device torch_device(const Device& device) {
    return device.kind() == DeviceKind::cuda ? at::Device(at::kCUDA) : at::Device(at::kCPU);
}

at::Tensor view_of(std::byte* data, const std::vector<std::int64_t>& shape, PlaneType type, const Device& device) {
    return at::from_blob(data, shape, at::TensorOptions().dtype(scalar_type(type)).device(torch_device(device)));
}

}  // namespace penstock
