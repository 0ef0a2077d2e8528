// What torch is told about a GPU, on the stand-in for CUDA's runtime. No kernel runs: torch's are not there.
#include "tests/zero_infinity/device/fake_cudart.h"
#include "zero_infinity/engine/parameter.h"
#include "zero_infinity/engine/torch/tensor_view.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

class TorchDevice : public ::testing::TestWithParam<int> {
   protected:
    TorchDevice() {
        fake_cudart::reset(1);
        device_ = zero::make_device({.kind = zero::DeviceKind::cuda, .budget_bytes = 1 << 16, .index = GetParam()});
    }
    std::unique_ptr<zero::Device> device_;
};

// Inputs are on "cuda:0": a tensor on "cuda" is on another device to torch, and their first operation is refused.
TEST_P(TorchDevice, HasTheIndexOfTheGpu) {
    const at::Device device = engine::torch_device(*device_);
    EXPECT_TRUE(device.has_index());
    EXPECT_EQ(device, at::Device(at::kCUDA, static_cast<at::DeviceIndex>(GetParam())));
}

TEST_P(TorchDevice, ParametersAndGradientsAreOnIt) {
    const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(GetParam()));
    std::byte* memory = device_->allocate(4096, "test");
    engine::Parameter parameter({"weight", {8, 16}}, engine::Initial::ones());
    parameter.materialise(at::kBFloat16, engine::torch_device(*device_));
    parameter.bind(memory);
    EXPECT_TRUE(parameter.tensor().device().has_index());
    EXPECT_EQ(parameter.tensor().device(), device);
    EXPECT_EQ(parameter.tensor().data_ptr(), memory);
    EXPECT_EQ(parameter.tensor().storage().device(), device);

    const at::Tensor view = engine::view_of(memory, {8, 16}, zero::PlaneType::bf16, *device_);
    EXPECT_EQ(view.device(), device);
    EXPECT_EQ(view.data_ptr(), memory);
    EXPECT_EQ(view.sizes(), at::IntArrayRef({8, 16}));
    parameter.release();
    EXPECT_EQ(parameter.state(), engine::Parameter::State::released);
}

INSTANTIATE_TEST_SUITE_P(Indices, TorchDevice, ::testing::Values(0, 1));

TEST(TorchDeviceOfHost, IsTheCpu) {
    for (const zero::DeviceKind kind : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        const auto device = zero::make_device({.kind = kind, .budget_bytes = 4096});
        EXPECT_EQ(engine::torch_device(*device), at::Device(at::kCPU));
    }
}

}  // namespace
}  // namespace penstock::testing
