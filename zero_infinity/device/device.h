// Where compute reads weights and leaves gradients: three devices behind one seam. Knows bytes, not tensors.
//
//   cpu       compute reads host memory where it lies: no copy, no memory of its own.
//   emulated  for tests: an arena and a budget of its own, copies on threads of its own after an adjustable delay.
//             Fresh and released memory and the targets of copies under way hold 0xff (NaN in every float type), so
//             that a read before its ticket or after its release shows.
//   cuda      its twin on a GPU, chosen at link time (device_cuda.cpp or device_no_cuda.cpp).
//
//   auto device = make_device({.kind = DeviceKind::emulated, .budget_bytes = 64 << 20});
//   std::byte* window = device->allocate(16 << 20, "weights window");
//   const Ticket there = device->copy_in(window, host, bytes);    // host stays unchanged until it is reached
//   device->compute_after(there);
//   … compute reads the window …
//   const Ticket read = device->compute_mark();
//   device->copy_in(window, other, bytes, read);                  // nobody waits: the copy comes after the compute
#pragma once

#include "aio/words/enum_words.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace penstock::pool {
class PinnedPool;
}

namespace penstock::zero {

// A point in the order of a device's copies or of its compute; reached when the call that returned it, and all before
// it in that lane, are done. A default one is reached from the start.
struct Ticket {
    enum class Lane : std::uint8_t { none, in, out, compute } lane = Lane::none;
    std::uint64_t number = 0;  // 0 is reached from the start
};

inline constexpr std::uint64_t device_alignment_bytes = 512;

enum class DeviceKind : std::uint8_t { cpu, emulated, cuda };
constexpr auto words_of(DeviceKind) noexcept {
    return std::array{Word{DeviceKind::cpu, "cpu"}, Word{DeviceKind::emulated, "emulated"},
                      Word{DeviceKind::cuda, "cuda"}};
}

struct DeviceOptions {
    DeviceKind kind = DeviceKind::cpu;
    std::uint64_t budget_bytes = 0;           // of emulated and cuda: taken at construction
    std::chrono::microseconds copy_delay{0};  // of emulated, before each copy
    int index = 0;                            // of cuda
};

// Thread-safe. Copies in one direction happen in the order of the calls, the two directions beside each other. Errors
// of the device throw Error naming the call. The destructor ends the copy under way; those behind
// it are ended (cuda) or dropped (emulated), so their memory must still be there.
class Device {
   public:
    virtual ~Device() = default;
    virtual DeviceKind kind() const noexcept = 0;
    const char* name() const noexcept { return word_of(kind()); }
    virtual int index() const noexcept { return 0; }  // among the devices of its kind
    bool shares_host_memory() const noexcept { return kind() == DeviceKind::cpu; }
    bool computes_on_caller() const noexcept { return kind() != DeviceKind::cuda; }  // else on a stream

    // Memory for as long as the device lives, device_alignment_bytes aligned; at set-up only. Throws Error
    // (does_not_fit) when the budget is exceeded, naming `use`. REQUIRES: not shares_host_memory(); bytes > 0.
    virtual std::byte* allocate(std::uint64_t bytes, const std::string& use) = 0;
    virtual std::uint64_t used_bytes() const noexcept = 0;

    // Copies from and to this pool's memory are cut at its seams (PinnedPool::seam_after), because cuda may refuse
    // one that spans two registrations; a ticket still stands for the whole copy. At set-up, before the first copy; the
    // pool outlives the copies.
    virtual void cut_at_seams_of(const pool::PinnedPool& /*pool*/) {}

    // Host → device and device → host, asynchronous; both ranges stay valid and unchanged until the ticket is reached.
    // copy_in() begins when `after` is reached; copy_out() reads what the compute issued so far leaves. Host memory
    // that is not registered with the device (Region) makes cuda's call synchronous. REQUIRES: not
    // shares_host_memory(); the device range was allocated.
    virtual Ticket copy_in(std::byte* device, const std::byte* host, std::uint64_t bytes, Ticket after = {}) = 0;
    virtual Ticket copy_out(std::byte* host, const std::byte* device, std::uint64_t bytes) = 0;
    virtual bool reached(Ticket ticket) = 0;
    // False: not reached in time. A GPU that hangs is found by this deadline, not by compute_after().
    virtual bool wait(Ticket ticket, std::chrono::nanoseconds timeout) = 0;

    // Compute is what the calling thread does or, on cuda, what is issued on one stream: torch's default one, until the
    // caller names another (a cudaStream_t), which goes on after what was issued on the one before.
    virtual void compute_on(void* /*stream*/) {}
    // Compute must not pass before the ticket is reached. Where compute is the calling thread this waits, as long as it
    // takes: with a deadline, wait() before.
    virtual void compute_after(Ticket ticket) = 0;
    // Reached when the compute issued so far has ended, so that what it read may be overwritten.
    virtual Ticket compute_mark() = 0;

    // The range holds nothing that anyone may still read. REQUIRES: no copy from or to it is under way.
    virtual void released(std::byte* device, std::uint64_t bytes) noexcept = 0;
};

std::unique_ptr<Device> make_cpu_device();
std::unique_ptr<Device> make_emulated_device(const DeviceOptions& options);
// Throws Error (usage) when the program was built without CUDA, no GPU answers, or it has no GPU of that index; Error
// (does_not_fit) when the GPU has less free memory than the budget.
std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options);
std::unique_ptr<Device> make_device(const DeviceOptions& options);

// Memory that the device has left for a budget. Throws Error: usage (a device of which that cannot be known: its budget
// must be given), and as make_cuda_device().
std::uint64_t free_device_bytes(const DeviceOptions& options);
std::uint64_t free_cuda_bytes(const DeviceOptions& options);

}  // namespace penstock::zero
