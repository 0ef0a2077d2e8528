// The loop that serves transfers: urgency, chunks, bounds in flight, statistics.
#pragma once

#include "aio/backend.h"
#include "aio/transfer.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

struct Chunk;  // aio/chunk.h: the implementation's

struct IoLimits {
    std::uint32_t chunk_bytes = 1U << 20;        // longest single attempt, a power of two; more does not read faster
    std::uint64_t in_flight_bytes = 8ULL << 20;  // per direction; one chunk is let through whatever its length
    int tries = 8;                               // at one place without progress (EAGAIN, EINTR), then it is an error
};

// Counts since construction. Written by the owner only, readable from any thread while running. Bytes are those that
// count towards a transfer: without errors their sum is what was asked for.
struct IoStatistics {
    std::array<std::atomic<std::uint64_t>, urgency_count> read_bytes{};
    std::array<std::atomic<std::uint64_t>, urgency_count> write_bytes{};
    std::atomic<std::uint64_t> attempts{0};
    std::atomic<std::uint64_t> resumed{0};  // short transfers that were continued
    std::atomic<std::uint64_t> retried{0};  // EAGAIN, EINTR
    std::atomic<std::uint64_t> flushes{0};
    std::uint64_t total_read_bytes() const noexcept;
    std::uint64_t total_write_bytes() const noexcept;
};

struct OldestTransfer {
    std::string path;
    IoKind kind = IoKind::read;
    std::uint64_t offset_bytes = 0;
    std::chrono::nanoseconds age{0};  // since it was handed to the kernel, not since it was queued
};

// Owned by one thread, which calls everything but wake() and statistics(). Allocates in the constructor and for an
// error only. start() only queues: the next poll() or wait() hands the work to the kernel, so call one of them before
// computing. Direct I/O in flight cannot be cancelled: the destructor waits for it. Transfers that are not done by then
// become idle with the error ECANCELED, without a call of done().
//
//   struct Load : Transfer { void done() noexcept override { loaded = !error(); } bool loaded = false; } load;
//   Io io(open_backend(file.fd(), {}).backend, {});
//   io.start(load, {.kind = IoKind::read, .file = &file, .data = memory, .offset_bytes = 0, .bytes = 4096});
//   while (!load.idle()) io.wait(std::chrono::seconds(1));
class Io {
   public:
    Io(std::unique_ptr<Backend> backend, IoLimits limits);
    ~Io();
    Io(const Io&) = delete;
    Io& operator=(const Io&) = delete;

    // REQUIRES: transfer is idle, the request obeys the file's alignment. Never blocks, never completes inside.
    void start(Transfer& transfer, const TransferRequest& request);

    // Delivers what is complete; returns how many transfers were delivered.
    std::size_t poll() { return wait(std::chrono::nanoseconds(0)); }
    // Same, but blocks until one was delivered, wake() was called or the timeout has passed.
    std::size_t wait(std::chrono::nanoseconds timeout);
    void wake() noexcept;  // any thread; async-signal-safe; not lost when it comes before the wait

    bool idle() const noexcept { return unfinished_ == 0; }
    // What has been with the kernel longest: who to name when a device is stuck. Walks over all that is in flight.
    std::optional<OldestTransfer> oldest() const;

    const IoStatistics& statistics() const noexcept { return statistics_; }
    const char* backend_name() const noexcept { return backend_->name(); }

   private:
    enum class Direction : std::uint8_t { read, write, flush };
    static constexpr std::size_t direction_count = 3;
    struct Queue {  // intrusive, first in first out
        Transfer* head = nullptr;
        Transfer* tail = nullptr;
        void push(Transfer& transfer) noexcept;
        Transfer* pop() noexcept;
    };
    static Direction direction_of(IoKind kind) noexcept;
    Queue& queue_of(const Transfer& transfer) noexcept;

    void issue() noexcept;
    bool issue_from(Queue& queue, Direction direction) noexcept;
    bool may_issue(Direction direction, std::uint64_t bytes) const noexcept;
    void issue_chunk(Transfer& transfer, std::uint32_t bytes) noexcept;
    void submit(Chunk& chunk) noexcept;
    void collect(Attempt* finished) noexcept;
    void settle(Chunk& chunk) noexcept;
    void fail(Chunk& chunk, int errno_value) noexcept;
    void cancel(Transfer& transfer) noexcept;
    void count_bytes(const Chunk& chunk, std::uint32_t bytes) noexcept;
    void retire(Chunk& chunk) noexcept;
    std::size_t deliver() noexcept;

    // Constant after construction.
    std::unique_ptr<Backend> backend_;
    IoLimits limits_;
    std::vector<Chunk> chunks_;  // one per place in the backend: an attempt that is repeated always finds its place

    // The owner's.
    Chunk* free_chunks_ = nullptr;
    std::array<std::array<Queue, direction_count>, urgency_count> queues_;
    Queue drained_;  // done() is due
    std::array<std::uint64_t, direction_count> in_flight_bytes_{};
    std::size_t chunks_in_flight_ = 0;
    std::size_t unfinished_ = 0;
    bool delivering_ = false;

    // Any thread's.
    std::atomic<bool> woken_{false};
    IoStatistics statistics_;
};

}  // namespace penstock
