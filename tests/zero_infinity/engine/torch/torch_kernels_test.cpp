#include "zero_infinity/engine/torch/torch_kernels.h"
#include "aio/words/error.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>

namespace penstock::engine {
namespace {

TEST(TorchKernels, OfTheCpuNeedNothing) {
    load_torch_kernels(zero::DeviceKind::cpu);
    load_torch_kernels(zero::DeviceKind::emulated);
    EXPECT_EQ(::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD), nullptr);
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
}

// Where a toolkit is, ./run has installed all that the library needs: it loads without a GPU too. Torch is told
// nothing: its settings are the process's.
TEST(TorchKernels, OfCudaLoadOrSayWhatIsMissing) {
    try {
        load_torch_kernels(zero::DeviceKind::cuda);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage);
        EXPECT_NE(std::strstr(error.what(), "PENSTOCK_TORCH"), nullptr) << error.what();
        GTEST_SKIP() << error.what();
    }
    EXPECT_NE(::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_NOLOAD), nullptr);
    EXPECT_FALSE(at::globalContext().deterministicAlgorithms());
    EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::HIGHEST);
}

}  // namespace
}  // namespace penstock::engine
