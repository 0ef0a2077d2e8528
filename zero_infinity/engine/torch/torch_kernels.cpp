#include "zero_infinity/engine/torch/torch_kernels.h"

#include "aio/words/error.h"

#include <dlfcn.h>
#include <fmt/format.h>

namespace penstock::engine {

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
}

}  // namespace penstock::engine
