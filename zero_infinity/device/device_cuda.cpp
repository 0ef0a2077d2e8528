// A GPU through the CUDA runtime alone: no kernels, so no nvcc. Two non-blocking streams carry the copies; compute is
// taken to run on the legacy default stream, where torch puts it, unless compute_on() names another. Streams wait for
// each other by events; a thread waits where it asks for that, and where a lane is full.

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/device/device_arena.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace penstock::zero {
namespace {

// Of one lane that may be under way at once; one more makes its caller wait for the oldest. Far above what a prefetch
// depth of a few units needs.
constexpr std::size_t most_under_way = 256;

constexpr std::chrono::microseconds poll_interval{20};  // CUDA has no wait with a deadline

// The error is taken off the thread, where torch would find it and blame a kernel of its own.
std::string take_error(cudaError_t error) {
    (void)cudaGetLastError();
    return fmt::format("{} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
}

void succeed(cudaError_t error, const char* call) {
    if (error == cudaSuccess) return;
    throw Error(ExitCode::internal,
                fmt::format("Device 'cuda': {} failed: {}. The GPU's own messages are in the kernel log (dmesg, "
                            "nvidia-smi -q); restart from the last committed step.",
                            call, take_error(error)));
}

// False: not ready.
bool ready(cudaError_t error, const char* call) {
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return false;
    }
    succeed(error, call);
    return true;
}

struct CudaDeleter {
    void operator()(cudaStream_t stream) const noexcept { (void)cudaStreamDestroy(stream); }
    void operator()(cudaEvent_t event) const noexcept { (void)cudaEventDestroy(event); }
    void operator()(std::byte* memory) const noexcept { (void)cudaFree(memory); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, CudaDeleter>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, CudaDeleter>;
using Memory = std::unique_ptr<std::byte, CudaDeleter>;

Stream make_stream() {
    cudaStream_t stream = nullptr;
    succeed(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    return Stream(stream);
}

Event make_event() {
    cudaEvent_t event = nullptr;
    succeed(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return Event(event);
}

// Points in the order of one stream, or of several of which each goes on after the one before: an event for each of the
// last most_under_way of them. Thread-safe; the caller has set the device.
class Lane {
   public:
    explicit Lane(Ticket::Lane lane) : lane_(lane) {
        for (Event& event : events_) event = make_event();
    }
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // Calls issue(), which puts something on the stream, and marks its end.
    template <typename Issue>
    Ticket mark(cudaStream_t stream, const Issue& issue);
    bool reached(std::uint64_t number);
    // What is issued on `stream` from now on waits for the ticket.
    void hold_back(cudaStream_t stream, std::uint64_t number);

   private:
    // REQUIRES of these: mutex_ is held.
    void check_submitted(std::uint64_t number) const {
        PENSTOCK_CHECK(number <= submitted_count_, "ticket {} of {}", number, submitted_count_);
    }
    cudaEvent_t event(std::uint64_t number) const { return events_[number % most_under_way].get(); }

    const Ticket::Lane lane_;
    std::mutex mutex_;
    std::array<Event, most_under_way> events_;
    std::uint64_t submitted_count_ = 0;
    std::uint64_t done_count_ = 0;  // known to be: every event of a lower number may have been used again
};

template <typename Issue>
Ticket Lane::mark(cudaStream_t stream, const Issue& issue) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t number = submitted_count_ + 1;
    if (number > done_count_ + most_under_way) {
        const std::uint64_t oldest = number - most_under_way;
        succeed(cudaEventSynchronize(event(oldest)), "cudaEventSynchronize");
        done_count_ = oldest;
    }
    issue();
    succeed(cudaEventRecord(event(number), stream), "cudaEventRecord");
    submitted_count_ = number;
    return {lane_, number};
}

bool Lane::reached(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    check_submitted(number);
    if (number <= done_count_) return true;
    if (!ready(cudaEventQuery(event(number)), "cudaEventQuery")) return false;
    done_count_ = number;
    return true;
}

void Lane::hold_back(cudaStream_t stream, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    check_submitted(number);
    if (number <= done_count_) return;
    succeed(cudaStreamWaitEvent(stream, event(number), 0), "cudaStreamWaitEvent");
}

// Copies of one direction, on a stream of their own. Their host memory may be gone after its end.
class CopyStream {
   public:
    explicit CopyStream(Ticket::Lane lane) : stream_(make_stream()), lane_(lane) {}
    ~CopyStream() { (void)cudaStreamSynchronize(stream_.get()); }
    CopyStream(const CopyStream&) = delete;
    CopyStream& operator=(const CopyStream&) = delete;

    Ticket copy(void* to, const void* from, std::uint64_t bytes, cudaMemcpyKind kind) {
        return lane_.mark(stream_.get(),
                          [&] { succeed(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "cudaMemcpyAsync"); });
    }
    cudaStream_t stream() const noexcept { return stream_.get(); }
    Lane& lane() noexcept { return lane_; }

   private:
    Stream stream_;
    Lane lane_;
};

struct MemoryInfo {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
};

// Of the thread's device.
MemoryInfo memory_info() {
    MemoryInfo info;
    succeed(cudaMemGetInfo(&info.free_bytes, &info.total_bytes), "cudaMemGetInfo");
    return info;
}

Memory make_memory(const DeviceOptions& options) {
    if (options.budget_bytes == 0) return {};
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, options.budget_bytes);
    if (error == cudaErrorMemoryAllocation) {
        const std::string reason = take_error(error);
        const auto [free_bytes, total_bytes] = memory_info();
        throw Error(
            ExitCode::does_not_fit,
            fmt::format(
                "Device 'cuda' {}: the budget of {} bytes cannot be had: {}; {} of {} bytes are free. Lower the "
                "device's memory budget, or end what else uses this GPU.",
                options.index, options.budget_bytes, reason, free_bytes, total_bytes));
    }
    succeed(error, "cudaMalloc");
    return Memory(static_cast<std::byte*>(memory));
}

class CudaDevice final : public Device {
   public:
    // REQUIRES: the thread's device is set.
    explicit CudaDevice(const DeviceOptions& options)
        : index_(options.index),
          arena_(fmt::format("cuda {}", options.index), options.budget_bytes),
          memory_(make_memory(options)) {
        PENSTOCK_CHECK(reinterpret_cast<std::uintptr_t>(memory_.get()) % device_alignment_bytes == 0,
                       "cudaMalloc gave {}", static_cast<const void*>(memory_.get()));
    }
    ~CudaDevice() override { (void)cudaSetDevice(index_); }

    DeviceKind kind() const noexcept override { return DeviceKind::cuda; }
    int index() const noexcept override { return index_; }

    std::byte* allocate(std::uint64_t bytes, const std::string& use) override {
        return memory_.get() + arena_.allocate(bytes, use);
    }
    std::uint64_t used_bytes() const noexcept override { return arena_.used_bytes(); }

    void cut_at_seams_of(const pool::PinnedPool& pool) override { pool_ = &pool; }
    Ticket copy_in(std::byte* device, const std::byte* host, std::uint64_t bytes, Ticket after) override {
        arena_.check_allocated(memory_.get(), device, bytes);
        enter();
        hold_back(in_.stream(), after);
        return in_pieces(host, bytes, [&](std::uint64_t begin, std::uint64_t piece_bytes) {
            return in_.copy(device + begin, host + begin, piece_bytes, cudaMemcpyHostToDevice);
        });
    }
    Ticket copy_out(std::byte* host, const std::byte* device, std::uint64_t bytes) override {
        arena_.check_allocated(memory_.get(), device, bytes);
        hold_back(out_.stream(), compute_mark());
        return in_pieces(host, bytes, [&](std::uint64_t begin, std::uint64_t piece_bytes) {
            return out_.copy(host + begin, device + begin, piece_bytes, cudaMemcpyDeviceToHost);
        });
    }

    bool reached(Ticket ticket) override {
        if (ticket.number == 0) return true;
        enter();
        return lane(ticket).reached(ticket.number);
    }
    bool wait(Ticket ticket, std::chrono::nanoseconds timeout) override {
        // At most a day: now() + nanoseconds::max() would overflow.
        const auto bounded = std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24));
        const auto deadline = std::chrono::steady_clock::now() + bounded;
        while (!reached(ticket)) {
            if (std::chrono::steady_clock::now() >= deadline) return false;
            std::this_thread::sleep_for(poll_interval);
        }
        return true;
    }

    void compute_on(void* given) override {
        const auto stream = static_cast<cudaStream_t>(given);
        if (stream == compute_.load()) return;
        const Ticket before = compute_mark();
        hold_back(stream, before);
        compute_.store(stream);
    }
    void compute_after(Ticket ticket) override {
        enter();
        hold_back(compute_.load(), ticket);
    }
    Ticket compute_mark() override {
        enter();
        return marks_.mark(compute_.load(), [] {});
    }

    void released(std::byte* device, std::uint64_t bytes) noexcept override {
        arena_.check_allocated(memory_.get(), device, bytes);
    }

   private:
    // The last piece's ticket: it is reached when all before it are done.
    template <typename Submit>
    Ticket in_pieces(const std::byte* host, std::uint64_t bytes, const Submit& submit) const {
        std::uint64_t begin = 0;
        for (;;) {
            const std::uint64_t room = pool_ == nullptr ? bytes : pool_->seam_after(host + begin);
            const std::uint64_t piece_bytes = std::min(bytes - begin, room);
            const Ticket ticket = submit(begin, piece_bytes);
            begin += piece_bytes;
            if (begin == bytes) return ticket;
        }
    }
    // Which GPU is current is a matter of each thread.
    void enter() const { succeed(cudaSetDevice(index_), "cudaSetDevice"); }
    Lane& lane(Ticket ticket) {
        PENSTOCK_CHECK(ticket.lane != Ticket::Lane::none, "ticket {} of no lane", ticket.number);
        if (ticket.lane == Ticket::Lane::compute) return marks_;
        return ticket.lane == Ticket::Lane::in ? in_.lane() : out_.lane();
    }
    // REQUIRES: enter().
    void hold_back(cudaStream_t stream, Ticket ticket) {
        if (ticket.number > 0) lane(ticket).hold_back(stream, ticket.number);
    }

    const int index_;
    std::atomic<cudaStream_t> compute_{cudaStreamLegacy};
    const pool::PinnedPool* pool_ = nullptr;
    DeviceArena arena_;
    Memory memory_;  // before the streams, which end their copies first
    Lane marks_{Ticket::Lane::compute};
    CopyStream in_{Ticket::Lane::in};
    CopyStream out_{Ticket::Lane::out};
};

// Makes that GPU the thread's.
void choose(const DeviceOptions& options) {
    int count = 0;
    const cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0) {
        throw Error(ExitCode::usage,
                    fmt::format("The device 'cuda': no GPU answers: {}. Look whether nvidia-smi lists one and "
                                "CUDA_VISIBLE_DEVICES allows it, or set the device to 'cpu'.",
                                take_error(error == cudaSuccess ? cudaErrorNoDevice : error)));
    }
    if (options.index < 0 || options.index >= count) {
        throw Error(ExitCode::usage,
                    fmt::format("The device 'cuda': there is no GPU {}; this machine has {}, counted from 0.",
                                options.index, count));
    }
    succeed(cudaSetDevice(options.index), "cudaSetDevice");
}

}  // namespace

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options) {
    choose(options);
    return std::make_unique<CudaDevice>(options);
}

std::uint64_t free_cuda_bytes(const DeviceOptions& options) {
    choose(options);
    return memory_info().free_bytes;
}

}  // namespace penstock::zero
