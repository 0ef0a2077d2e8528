#include "tests/zero_infinity/device/fake_cudart.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

struct FakeEvent {
    int device = 0;
    std::uint64_t recorded = 0;  // how many times cudaEventRecord was called
    std::uint64_t done = 0;      // the newest of them that has happened
};

struct Operation {
    std::function<bool()> may_run;
    std::function<void()> run;
};

struct FakeStream {
    int device = 0;
    std::deque<Operation> operations;
};

struct Runtime {
    std::mutex mutex;
    std::mt19937 random;
    int device_count = 2;
    std::map<std::string, cudaError_t> failures;
    cudaError_t last_error = cudaSuccess;
    std::vector<FakeStream*> streams;  // in order of creation, so that a seed means the same every time
    std::map<FakeEvent*, std::shared_ptr<FakeEvent>> events;  // what was issued keeps one that is destroyed
    std::map<void*, int> memory;                              // to its device
    FakeStream legacy[2];
    std::size_t misuses = 0;
    std::map<std::uintptr_t, std::uintptr_t> registered;  // begin to end
    std::size_t copies = 0;
};

Runtime& runtime() {
    static Runtime runtime;
    return runtime;
}

thread_local int current_device = 0;

// The memory of one device; more is refused.
constexpr std::size_t device_bytes = 4 << 20;

cudaError_t outcome(const std::string& call, cudaError_t error = cudaSuccess) {
    Runtime& cuda = runtime();
    const auto failure = cuda.failures.find(call);
    if (failure != cuda.failures.end()) {
        error = failure->second;
        cuda.failures.erase(failure);
    }
    if (error != cudaSuccess) cuda.last_error = error;
    return error;
}

void expect_device(int device) {
    if (device != current_device) ++runtime().misuses;
}

FakeStream& stream_of(cudaStream_t handle) {
    Runtime& cuda = runtime();
    if (handle == cudaStreamLegacy || handle == nullptr) return cuda.legacy[current_device];
    auto* stream = reinterpret_cast<FakeStream*>(handle);
    if (std::find(cuda.streams.begin(), cuda.streams.end(), stream) == cuda.streams.end()) std::abort();
    expect_device(stream->device);
    return *stream;
}

std::shared_ptr<FakeEvent> event_of(cudaEvent_t handle) {
    const auto found = runtime().events.find(reinterpret_cast<FakeEvent*>(handle));
    if (found == runtime().events.end()) std::abort();
    expect_device(found->second->device);
    return found->second;
}

bool step() {
    Runtime& cuda = runtime();
    std::vector<FakeStream*> able;
    const auto look = [&](FakeStream& stream) {
        if (!stream.operations.empty() && stream.operations.front().may_run()) able.push_back(&stream);
    };
    for (FakeStream& stream : cuda.legacy) look(stream);
    for (FakeStream* stream : cuda.streams) look(*stream);
    if (able.empty()) return false;
    FakeStream& stream = *able[cuda.random() % able.size()];
    const Operation operation = std::move(stream.operations.front());
    stream.operations.pop_front();
    operation.run();
    return true;
}

template <typename Done>
void step_until(Done done) {
    while (!done()) {
        if (step()) continue;
        std::fputs("fake_cudart: waits for something that can never happen\n", stderr);
        std::abort();
    }
}

// Within one registered range, or clear of all.
bool is_copyable(const void* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    const auto end = begin + bytes;
    const auto within = [&](const auto& range) { return range.first <= begin && end <= range.second; };
    const auto clear = [&](const auto& range) { return end <= range.first || range.second <= begin; };
    const auto& registered = runtime().registered;
    return std::any_of(registered.begin(), registered.end(), within) ||
           std::all_of(registered.begin(), registered.end(), clear);
}

bool always() {
    return true;
}

}  // namespace

namespace penstock::fake_cudart {

void reset(unsigned seed) {
    Runtime& cuda = runtime();
    cuda.random.seed(seed);
    cuda.device_count = 2;
    cuda.failures.clear();
    cuda.last_error = cudaSuccess;
    cuda.misuses = 0;
    cuda.registered.clear();
    cuda.copies = 0;
    for (FakeStream& stream : cuda.legacy) stream.operations.clear();
    current_device = 0;
}

void register_host(const void* data, std::size_t bytes) {
    const auto begin = reinterpret_cast<std::uintptr_t>(data);
    runtime().registered[begin] = begin + bytes;
}
std::size_t copies() {
    return runtime().copies;
}
void set_device_count(int count) {
    runtime().device_count = count;
}
void fail_once(const std::string& call, cudaError_t error) {
    runtime().failures[call] = error;
}
void launch(std::function<void()> kernel) {
    const std::lock_guard lock(runtime().mutex);
    runtime().legacy[current_device].operations.push_back({always, std::move(kernel)});
}
void launch_on(cudaStream_t stream, std::function<void()> kernel) {
    const std::lock_guard lock(runtime().mutex);
    stream_of(stream).operations.push_back({always, std::move(kernel)});
}
void run_all() {
    const std::lock_guard lock(runtime().mutex);
    while (step()) {
    }
}
std::size_t live_objects() {
    return runtime().streams.size() + runtime().events.size() + runtime().memory.size();
}
std::size_t misuses() {
    return runtime().misuses;
}
cudaError_t pending_error() {
    return runtime().last_error;
}

}  // namespace penstock::fake_cudart

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorNoDevice ? "cudaErrorNoDevice" : "cudaErrorFake";
}
const char* cudaGetErrorString(cudaError_t /*error*/) {
    return "as the test asked";
}
cudaError_t cudaGetLastError() {
    const std::lock_guard lock(runtime().mutex);
    return std::exchange(runtime().last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
    const std::lock_guard lock(runtime().mutex);
    *count = runtime().device_count;
    return outcome("cudaGetDeviceCount");
}

cudaError_t cudaSetDevice(int device) {
    const std::lock_guard lock(runtime().mutex);
    current_device = device;
    return outcome("cudaSetDevice");
}

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
    const std::lock_guard lock(runtime().mutex);
    const cudaError_t error = outcome("cudaMalloc", bytes > device_bytes ? cudaErrorMemoryAllocation : cudaSuccess);
    if (error != cudaSuccess) return error;
    *memory = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    runtime().memory[*memory] = current_device;
    return error;
}

cudaError_t cudaFree(void* memory) {
    const std::lock_guard lock(runtime().mutex);
    expect_device(runtime().memory.at(memory));
    while (step()) {  // what may still use it ends before
    }
    runtime().memory.erase(memory);
    std::free(memory);
    return outcome("cudaFree");
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
    const std::lock_guard lock(runtime().mutex);
    *free_bytes = *total_bytes = device_bytes;
    return outcome("cudaMemGetInfo");
}

cudaError_t cudaHostRegister(void* data, std::size_t bytes, unsigned /*flags*/) {
    const std::lock_guard lock(runtime().mutex);
    penstock::fake_cudart::register_host(data, bytes);
    return outcome("cudaHostRegister");
}

cudaError_t cudaHostUnregister(void* data) {
    const std::lock_guard lock(runtime().mutex);
    runtime().registered.erase(reinterpret_cast<std::uintptr_t>(data));
    return outcome("cudaHostUnregister");
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
    const std::lock_guard lock(runtime().mutex);
    if (flags != cudaStreamNonBlocking)
        return outcome("", cudaErrorInvalidValue);  // a blocking one is ordered by itself
    if (const cudaError_t error = outcome("cudaStreamCreateWithFlags"); error != cudaSuccess) return error;
    auto* stream = new FakeStream{current_device, {}};
    runtime().streams.push_back(stream);
    *handle = reinterpret_cast<cudaStream_t>(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    const std::lock_guard lock(runtime().mutex);
    FakeStream& stream = stream_of(handle);
    if (!stream.operations.empty()) ++runtime().misuses;
    std::erase(runtime().streams, &stream);
    delete &stream;
    return outcome("cudaStreamDestroy");
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    const std::lock_guard lock(runtime().mutex);
    FakeStream& stream = stream_of(handle);
    step_until([&] { return stream.operations.empty(); });
    return outcome("cudaStreamSynchronize");
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned /*flags*/) {
    const std::lock_guard lock(runtime().mutex);
    const auto event = event_of(event_handle);
    const std::uint64_t number = event->recorded;
    stream_of(handle).operations.push_back({[event, number] { return event->done >= number; }, [] {}});
    return outcome("cudaStreamWaitEvent");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned /*flags*/) {
    const std::lock_guard lock(runtime().mutex);
    if (const cudaError_t error = outcome("cudaEventCreateWithFlags"); error != cudaSuccess) return error;
    const auto event = std::make_shared<FakeEvent>(FakeEvent{current_device, 0, 0});
    runtime().events[event.get()] = event;
    *handle = reinterpret_cast<cudaEvent_t>(event.get());
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    const std::lock_guard lock(runtime().mutex);
    runtime().events.erase(event_of(handle).get());
    return outcome("cudaEventDestroy");
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) {
    const std::lock_guard lock(runtime().mutex);
    const auto event = event_of(handle);
    const std::uint64_t number = ++event->recorded;
    stream_of(stream).operations.push_back({always, [event, number] { event->done = std::max(event->done, number); }});
    return outcome("cudaEventRecord");
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    const std::lock_guard lock(runtime().mutex);
    const auto event = event_of(handle);
    step();
    return outcome("cudaEventQuery", event->done < event->recorded ? cudaErrorNotReady : cudaSuccess);
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    const std::lock_guard lock(runtime().mutex);
    const auto event = event_of(handle);
    step_until([&] { return event->done >= event->recorded; });
    return outcome("cudaEventSynchronize");
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t stream) {
    const std::lock_guard lock(runtime().mutex);
    ++runtime().copies;
    if (!is_copyable(to, bytes) || !is_copyable(from, bytes)) return outcome("cudaMemcpyAsync", cudaErrorInvalidValue);
    stream_of(stream).operations.push_back({always, [=] { std::memcpy(to, from, bytes); }});
    return outcome("cudaMemcpyAsync");
}

}  // extern "C"
