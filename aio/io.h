// The loop that serves transfers: urgency, chunks, bounds in flight, statistics.
#pragma once

#include "aio/admission.h"
#include "aio/backend.h"
#include "aio/statistics.h"
#include "aio/transfer_queue.h"
#include "aio/words/io_error.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::aio {

struct Chunk;        // aio/chunk.h: the implementation's
struct DeviceQueue;  // aio/device_queue.h
class DeviceQueues;  // likewise

// How long a device may take to answer before it counts as stuck, unless a program says otherwise.
inline constexpr std::chrono::seconds default_deadline{120};

struct IoLimits {
    // Longest single attempt, a power of two, or what a file asks offsets to be multiples of if that is more. More does
    // not read faster.
    std::uint32_t chunk_bytes = 1U << 20;
    InFlightLimits in_flight;  // per device
    int tries = 8;  // at one place without progress (EAGAIN with a growing pause, EINTR), then it is an error
    // How long an attempt may be with the kernel before advance(), finish() and the destructor say so. A flush, a write
    // that is durable when it ends and one through the page cache wait for other writes, perhaps for gigabytes of them:
    // to advance() and finish() they are late only when the device has written nothing for so long.
    std::chrono::nanoseconds deadline = default_deadline;
};

inline constexpr std::size_t max_io_devices = 16;

struct OldestTransfer {
    std::string path;
    IoKind kind = IoKind::read;
    std::uint64_t offset_bytes = 0;
    std::chrono::nanoseconds age{0};  // since it was handed to the kernel, not since it was queued

    // "read of /nvme/penstock.data at offset 4096 has not come back for 120 s"
    std::string message() const;
};

// Owned by one thread, which calls everything but wake(), give_back() and statistics(). Allocates in the constructor
// and for an error only. start() only queues: the next poll() or wait() hands the work to the kernel, so call one of
// them, or hand_over(), before computing.
//
// Files on different devices have queues and bounds of their own, for up to max_io_devices devices; further ones share
// those of the last. On each, demand reads go before prefetch reads, these before write-back, and scrub goes when
// nothing else waits; write-back is throttled while demand reads are about (aio/admission.h).
//
// Direct I/O in flight cannot be cancelled. The destructor waits until all of it is back or has been with the kernel
// longer than the deadline. Transfers that are not done by then become idle with the error ECANCELED, without a call of
// done(); those that a stuck device still has become orphaned, with ETIMEDOUT (Transfer::orphaned). The backend is then
// left to the kernel, and the process can exit. What was lent is given back before (checked).
//
//   struct Load : Transfer { void done() noexcept override { loaded = !error(); } bool loaded = false; } load;
//   Io io(open_backend(file.fd(), {}).backend, {});
//   io.start(load, {.kind = IoKind::read, .file = &file, .data = memory, .offset_bytes = 0, .bytes = 4096});
//   if (const auto stuck = io.finish(load)) throw Error(ExitCode::storage, stuck->message());
class Io {
   public:
    Io(std::unique_ptr<Backend> backend, IoLimits limits);
    ~Io();
    Io(const Io&) = delete;
    Io& operator=(const Io&) = delete;

    // REQUIRES: transfer is idle, the request obeys the file's alignment. Never blocks, never completes inside.
    void start(Transfer& transfer, const TransferRequest& request);

    // Ends without having moved anything: done() is called by the next poll() or wait(), without an error. For who
    // decides itself what becomes of an operation, and tells it where the others are told. REQUIRES: transfer is idle.
    void post(Transfer& transfer) noexcept;

    // The transfer is another thread's until that one gives it back, for work on the memory between two starts; then
    // done() is called by poll() or wait() as for others, without an error. Nothing of it is with the kernel, and no
    // deadline holds: such work ends by itself. REQUIRES: transfer is idle.
    void lend(Transfer& transfer) noexcept;
    // Any thread, but not during or after the destructor. The transfer is not the caller's any more. What the caller
    // wrote before is seen by done(). REQUIRES: it was lent.
    void give_back(Transfer& transfer) noexcept;

    // Hands to the kernel what may go there now; delivers nothing. For who computes for longer than a system call takes
    // after start(); also from done(), which may not poll.
    void hand_over() noexcept;

    // Moves what is not issued yet of the transfer to the end of a more urgent class, where it is counted from then on.
    // No effect when the transfer is in that class or a more urgent one already, wholly issued or idle.
    void promote(Transfer& transfer, Urgency urgency) noexcept;

    // Delivers what is complete; returns how many transfers were delivered.
    std::size_t poll() { return wait(std::chrono::nanoseconds(0)); }
    // Same, but blocks until one was delivered, wake() was called or the timeout has passed.
    std::size_t wait(std::chrono::nanoseconds timeout);
    // Ends a wait(), or the next one when none is under way. Any thread, but not during or after the destructor;
    // async-signal-safe.
    void wake() noexcept;

    bool idle() const noexcept { return unfinished_ == 0; }
    bool due() const noexcept {  // the next poll() delivers something
        return !drained_.empty() || given_back_.load(std::memory_order_relaxed) != nullptr;
    }

    // wait(), for whoever must notice that a device does not answer: returns what has been with the kernel longest once
    // that is longer than the deadline, and blocks no longer than until it can be. Such a device is stuck: what it has
    // may never come back. What came back while the process stood still counts as back. Costs no more than wait().
    [[nodiscard]] std::optional<OldestTransfer> advance(std::chrono::nanoseconds timeout);
    // The same until the transfer, or everything, has ended: nothing then. What is returned still runs.
    [[nodiscard]] std::optional<OldestTransfer> finish(const Transfer& transfer);
    [[nodiscard]] std::optional<OldestTransfer> finish_all();

    // What has been with the kernel longest. Walks over all that is in flight; an attempt that pauses before a retry is
    // not with the kernel.
    std::optional<OldestTransfer> oldest() const;

    // Keeps `ranges` pinned, or `files` open, in the kernel, which saves CPU for each later transfer; nothing else
    // changes for a transfer. Replaces what was registered before; an empty list registers nothing. Returns an empty
    // string, or one line that says why it was refused (limit on locked memory, backend): then nothing is registered
    // and everything works without. A registered file that is closed stays open in the kernel until it is replaced or
    // the Io ends: its space is not freed, its locks are held. REQUIRES: idle(); ranges do not overlap, are at most
    // max_registered_bytes long, and stay mapped, at the same pages, until they are replaced or the Io ends.
    std::string register_memory(std::span<const std::span<std::byte>> ranges);
    std::string register_files(std::span<const File* const> files);

    const IoStatistics& statistics() const noexcept { return statistics_; }
    std::chrono::nanoseconds deadline() const noexcept { return limits_.deadline; }
    const char* backend_name() const noexcept { return backend_->name(); }

   private:
    using Time = std::chrono::steady_clock::time_point;

    // io.cpp: from the queues to the backend and back to done().
    void issue() noexcept;
    void issue_queue(DeviceQueue& queue) noexcept;
    Admission issue_class(DeviceQueue& queue, IoKind kind, Urgency urgency) noexcept;
    std::uint32_t free_places(const DeviceQueue& queue) const noexcept;
    std::uint32_t next_chunk_bytes(const TransferRequest& request, std::uint64_t left) const noexcept;
    void issue_chunk(DeviceQueue& queue, Transfer& transfer) noexcept;
    void submit(Chunk& chunk) noexcept;
    void rest(Chunk& chunk) noexcept;
    void submit_rested() noexcept;
    Time next_timer(Time until) const noexcept;
    void reap(std::chrono::nanoseconds timeout) noexcept;
    void take_given_back() noexcept;
    void settle_all(Attempt* finished) noexcept;
    void settle(Chunk& chunk) noexcept;
    void fail(Chunk& chunk, int errno_value) noexcept;
    void retire(Chunk& chunk) noexcept;
    void drain(Transfer& transfer) noexcept;
    std::size_t deliver() noexcept;

    // io_deadline.cpp: what does not come back, and the end.
    const Chunk* oldest_chunk() const noexcept;
    OldestTransfer describe(const Chunk& chunk) const;
    void listen() noexcept;
    const Chunk* look() noexcept;
    template <typename Ended>
    std::optional<OldestTransfer> finish_until(const Ended& ended);
    void cancel_all() noexcept;
    void await_kernel() noexcept;
    void leave_to_kernel() noexcept;

    // Constant after construction.
    std::unique_ptr<Backend> backend_;
    IoLimits limits_;
    // One per place in the backend: an attempt that is repeated always finds its place.
    std::unique_ptr<Chunk[]> chunk_memory_;
    std::span<Chunk> chunks_;

    // The owner's.
    std::unique_ptr<DeviceQueues> queues_;
    std::size_t first_queue_ = 0;  // that is offered the places first
    Chunk* free_chunks_ = nullptr;
    std::size_t free_count_ = 0;
    Chunk* resting_ = nullptr;
    std::size_t handed_over_ = 0;    // chunks that the backend has
    TransferQueue drained_;          // done() is due
    bool resubmitted_ = false;       // by the last reap: those attempts are not with the kernel yet
    Time now_;                       // read when the owner enters, after each reap and after done() was called
    Time look_after_ = Time::min();  // what is in flight need not be looked at before: nothing is late until then
    std::size_t unfinished_ = 0;
    std::size_t lent_ = 0;  // of them
    bool delivering_ = false;

    // Any thread's.
    std::atomic<bool> woken_{false};
    std::atomic<Transfer*> given_back_{nullptr};  // the last one first, linked by Transfer::next_
    IoStatistics statistics_;
};

}  // namespace penstock::aio
