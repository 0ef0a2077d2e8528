// Without torch in the process. With it: tests/zero_infinity/device/opened_cuda_test.cpp.
#include "pinned_pool/opened/opened_cuda.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

namespace penstock::pool {
namespace {

TEST(OpenedCuda, IsTheFirstThatHasTheRuntime) {
    const OpenedCuda opened = open_cuda(std::array{"libpenstock-nowhere.so.1", "libm.so.6", PENSTOCK_FAKE_CUDART});
    ASSERT_NE(opened.library, nullptr) << opened.missing;
    EXPECT_NE(dlsym(opened.library, "cudaStreamWaitEvent"), nullptr);
    EXPECT_EQ(opened.missing, "");
}

TEST(OpenedCuda, SaysWhatWasLookedForAndWhatBringsIt) {
    const OpenedCuda opened = open_cuda(std::array{"libpenstock-nowhere.so.1", "libm.so.6"});
    EXPECT_EQ(opened.library, nullptr);
    for (const char* const said :
         {"libpenstock-nowhere.so.1: cannot open shared object file", "libm.so.6: undefined symbol: cudaGetDeviceCount",
          "pip install nvidia-cuda-runtime"})
        EXPECT_NE(opened.missing.find(said), std::string::npos) << opened.missing;
    EXPECT_EQ(opened.missing.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace penstock::pool
