// Page-locks host memory for CUDA. Links against the runtime only, so the program also starts where there is no driver.
#include "pinned_pool/registration.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

namespace penstock::pool {

std::string register_with_device(void* data, std::size_t bytes) {
    const cudaError_t error = cudaHostRegister(data, bytes, cudaHostRegisterPortable);
    if (error == cudaSuccess) return {};
    static_cast<void>(cudaGetLastError());  // not to be found by a later, unrelated check
    return fmt::format(
        "host memory is not registered with the GPU, so copies are slower: cudaHostRegister of {} bytes: {} ({})",
        bytes, cudaGetErrorString(error), cudaGetErrorName(error));
}

void unregister_from_device(void* data) noexcept {
    if (cudaHostUnregister(data) != cudaSuccess) static_cast<void>(cudaGetLastError());
}

}  // namespace penstock::pool
