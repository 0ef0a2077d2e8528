// Tensors over memory that someone else owns, and the words torch has for our types.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/device/device.h"

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

namespace penstock::engine {

at::ScalarType scalar_type(zero::PlaneType type);  // REQUIRES: a float type
// With the index of the GPU: to torch "cuda" is another device than "cuda:0", and tensors of both do not meet.
at::Device torch_device(const zero::Device& device);
// The memory outlives the tensor.
at::Tensor view_of(std::byte* data, const std::vector<std::int64_t>& shape, zero::PlaneType type,
                   const zero::Device& device);

}  // namespace penstock::engine
