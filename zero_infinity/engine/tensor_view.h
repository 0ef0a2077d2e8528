// Tensors over memory that someone else owns, and the words torch has for our types.
#pragma once

#include "zero_infinity/codec.h"
#include "zero_infinity/device.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace penstock {

at::ScalarType scalar_type(PlaneType type);  // REQUIRES: a float type
at::Device torch_device(const Device& device);
// The memory outlives the tensor.
at::Tensor view_of(std::byte* data, const std::vector<std::int64_t>& shape, PlaneType type, const Device& device);

}  // namespace penstock
