// A CUDA runtime in host memory, linked in place of the real one: what the cuda device asks of streams and events is
// checked where no GPU is. Nothing happens when it is called; work is done one operation at a time and only while
// someone asks or waits, each time on a random stream whose next operation may run. So whatever is not ordered by an
// event happens in every order.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

namespace penstock::fake_cudart {

void reset(unsigned seed);  // two devices, no objects, no failure; device memory of 4 MiB
// Registered host memory by its begin; a copy that reaches into two ranges, or out of one, is refused with
// cudaErrorInvalidValue, as CUDA may.
void register_host(const void* data, std::size_t bytes);  // as cudaHostRegister
std::size_t copies();                                     // calls of cudaMemcpyAsync since reset()
void set_device_count(int count);
void fail_once(const std::string& call, cudaError_t error);

// On the legacy stream, as torch's kernels: runs when its turn comes.
void launch(std::function<void()> kernel);
void launch_on(cudaStream_t stream, std::function<void()> kernel);
void run_all();  // everything that can run

std::size_t live_objects();   // streams, events and memory that were not given back
std::size_t misuses();        // streams destroyed while busy, calls with another device current than the object's
cudaError_t pending_error();  // what cudaGetLastError() would give

}  // namespace penstock::fake_cudart
