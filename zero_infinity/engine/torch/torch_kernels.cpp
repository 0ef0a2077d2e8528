#include "zero_infinity/engine/torch/torch_kernels.h"

#include "aio/words/error.h"

#include <ATen/Context.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace penstock::engine {
namespace {

// Some kernels of torch's add up in whatever order their threads come, attention's backward over long rows for one, as
// tests/gpu/torch_repeats.py shows. Told to refuse what it cannot do in one order, torch takes others, where it has
// them; told to warn alone, it does not. It asks that cuBLAS be told, too, which looks into the environment.
void sum_in_one_order() {
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(false);  // all of it is written before it is read
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
}

}  // namespace

void load_torch_kernels(zero::DeviceKind kind) {
    if (kind != zero::DeviceKind::cuda) return;
    // Found beside libtorch_cpu.so by the program's run path. Lazily: symbols of the driver come with the GPU. Never
    // closed: torch keeps pointers into it.
    if (::dlopen("libtorch_cuda.so", RTLD_LAZY | RTLD_GLOBAL) == nullptr) {
        const char* reason = ::dlerror();
        throw Error(ExitCode::usage,
                    fmt::format("this LibTorch cannot compute on a GPU: {}. Set PENSTOCK_TORCH to a LibTorch "
                                "with CUDA and build again",
                                reason != nullptr ? reason : "libtorch_cuda.so cannot be loaded"));
    }
    sum_in_one_order();
}

}  // namespace penstock::engine
