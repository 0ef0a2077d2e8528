// What an Io has moved, how often, and how long it took.
#pragma once

#include "aio/transfer.h"
#include "aio/words/histogram.h"
#include "aio/words/io_error.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>

namespace penstock::aio {

// One direction of one class of urgency. Times end when the owner reaps: what it spends elsewhere counts. Transfers
// that failed count in `errors` and not in the times.
struct LaneStatistics {
    std::atomic<std::uint64_t> bytes{0};      // that count towards a transfer: without errors, what was asked for
    std::atomic<std::uint64_t> transfers{0};  // ended, with or without an error
    std::atomic<std::uint64_t> errors{0};     // of them
    std::atomic<std::uint64_t> attempts{0};
    std::atomic<std::uint64_t> resumed{0};  // short transfers that were continued
    std::atomic<std::uint64_t> retried{0};  // EAGAIN, EINTR
    LatencyHistogram latency;               // of a transfer, from start() until its last byte was back
    LatencyHistogram wait;                  // of a transfer, from start() until its first byte was issued
    LatencyHistogram device;                // of an attempt, from its hand-over to the backend until it was back
};

// Only the owner writes: a plain load and store, readable elsewhere, without a locked instruction.
inline void bump(std::atomic<std::uint64_t>& counter, std::uint64_t by = 1) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

// Counts since construction. Written by the owner of the Io only, readable from any thread while it runs; ends with the
// Io.
struct IoStatistics {
    std::array<LaneStatistics, urgency_count> read;
    std::array<LaneStatistics, urgency_count> write;
    std::atomic<std::uint64_t> flushes{0};
    LatencyHistogram flush_time;
    // Times that a device's write-back began to be held back for demand reads.
    std::atomic<std::uint64_t> throttled{0};

    struct Ended {  // a transfer
        bool whole = true;
        std::chrono::nanoseconds latency{0};
        std::chrono::nanoseconds wait{0};
    };
    void count(const TransferRequest& request, const Ended& ended) noexcept;
    LaneStatistics* lane_of(IoKind kind, Urgency urgency) noexcept {  // null of a flush
        if (kind == IoKind::flush) return nullptr;
        return &(kind == IoKind::read ? read : write)[static_cast<std::size_t>(urgency)];
    }

    const LaneStatistics& lane(IoKind kind, Urgency urgency) const noexcept;  // REQUIRES: read or write
    std::uint64_t total_read_bytes() const noexcept;
    std::uint64_t total_write_bytes() const noexcept;
    std::uint64_t total_attempts() const noexcept;  // reads and writes
    std::uint64_t total_resumed() const noexcept;
    std::uint64_t total_retried() const noexcept;
};

}  // namespace penstock::aio
