// Linked as device_cuda_test.cpp is beside it: with a runtime that a library of torch's name brings.
#include "pinned_pool/opened/opened_cuda.h"
#include "tests/zero_infinity/device/fake_cudart.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

namespace penstock::zero {
namespace {

TEST(OpenedCuda, IsTheRuntimeThatTorchIsLinkedTo) {
    const pool::OpenedCuda opened = pool::open_cuda({});
    ASSERT_NE(opened.library, nullptr) << opened.missing;
    EXPECT_NE(dlsym(opened.library, "cudaGetDeviceCount"), reinterpret_cast<void*>(&cudaGetDeviceCount))
        << "the runtime is linked, not opened";
    fake_cudart::reset(1);
    int count = 0;
    EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
    EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace penstock::zero
