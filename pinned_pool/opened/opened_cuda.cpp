#include "pinned_pool/opened/opened_cuda.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

namespace penstock::pool {
namespace {

// Newest first. What is called of them is alike in both, to the numbers of errors.
constexpr std::array runtime_names{"libcudart.so.13", "libcudart.so.12"};

// A library that torch links its runtime to. Streams and events are those of one runtime or another; torch's are used.
constexpr const char* library_of_torch = "libc10_cuda.so";

bool has_runtime(void* library) {
    return library != nullptr && dlsym(library, "cudaGetDeviceCount") != nullptr;
}

void* loaded(const char* name) {
    void* const library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    return has_runtime(library) ? library : nullptr;
}

const OpenedCuda& opened() {
    static const OpenedCuda opened = open_cuda(runtime_names);
    return opened;
}

// The opened runtime's function, or null. Looked up once, where it is first called.
template <auto declared>
decltype(declared) found(const char* name) {
    static const auto function =
        reinterpret_cast<decltype(declared)>(opened().library == nullptr ? nullptr : dlsym(opened().library, name));
    return function;
}

template <auto declared, typename... Arguments>
cudaError_t call(const char* name, Arguments... arguments) {
    const auto function = found<declared>(name);
    return function == nullptr ? cudaErrorSharedObjectInitFailed : function(arguments...);
}

}  // namespace

OpenedCuda open_cuda(std::span<const char* const> names) {
    if (void* const torch = loaded(library_of_torch)) return {torch, {}};
    for (const char* const name : names) {
        if (void* const library = loaded(name)) return {library, {}};
    }
    std::string reasons;  // in the loader's words: a library that is there may lack one of its own
    for (const char* const name : names) {
        void* const library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
        if (has_runtime(library)) return {library, {}};
        reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", dlerror());
    }
    return {nullptr, fmt::format("no CUDA runtime could be opened: {}. A torch built for CUDA brings one, and so does "
                                 "'pip install nvidia-cuda-runtime'",
                                 reasons)};
}

}  // namespace penstock::pool

using penstock::pool::call;
using penstock::pool::found;
using penstock::pool::opened;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
    const auto function = found<cudaGetErrorName>("cudaGetErrorName");
    return function == nullptr ? "cudaErrorSharedObjectInitFailed" : function(error);
}
const char* cudaGetErrorString(cudaError_t error) {
    const auto function = found<cudaGetErrorString>("cudaGetErrorString");
    return function == nullptr ? opened().missing.c_str() : function(error);
}
cudaError_t cudaGetLastError() {
    return call<cudaGetLastError>("cudaGetLastError");
}
cudaError_t cudaGetDeviceCount(int* count) {
    return call<cudaGetDeviceCount>("cudaGetDeviceCount", count);
}
cudaError_t cudaSetDevice(int device) {
    return call<cudaSetDevice>("cudaSetDevice", device);
}
cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    return call<cudaMalloc>("cudaMalloc", memory, bytes);
}
cudaError_t cudaFree(void* memory) {
    return call<cudaFree>("cudaFree", memory);
}
cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned flags) {
    return call<cudaHostRegister>("cudaHostRegister", data, bytes, flags);
}
cudaError_t cudaHostUnregister(void* data) {
    return call<cudaHostUnregister>("cudaHostUnregister", data);
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    return call<cudaMemGetInfo>("cudaMemGetInfo", free_bytes, total_bytes);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    return call<cudaStreamCreateWithFlags>("cudaStreamCreateWithFlags", stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return call<cudaStreamDestroy>("cudaStreamDestroy", stream);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return call<cudaStreamSynchronize>("cudaStreamSynchronize", stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    return call<cudaStreamWaitEvent>("cudaStreamWaitEvent", stream, event, flags);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    return call<cudaEventCreateWithFlags>("cudaEventCreateWithFlags", event, flags);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    return call<cudaEventDestroy>("cudaEventDestroy", event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    return call<cudaEventRecord>("cudaEventRecord", event, stream);
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    return call<cudaEventQuery>("cudaEventQuery", event);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    return call<cudaEventSynchronize>("cudaEventSynchronize", event);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
    return call<cudaMemcpyAsync>("cudaMemcpyAsync", to, from, bytes, kind, stream);
}

}  // extern "C"
