// What devices have queued and in flight. Used by io*.cpp only.
#pragma once

#include "aio/admission.h"
#include "aio/chunk.h"
#include "aio/transfer_queue.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::aio {

// The queues hold what is not wholly handed to the kernel; `load` counts the bytes in flight. The Io asks `admit` and
// moves from one to the other.
struct DeviceQueue {
    using Time = std::chrono::steady_clock::time_point;

    std::uint64_t device = 0;
    InFlightLimits limits;
    DeviceLoad load;
    std::array<TransferQueue, urgency_count> reads;
    std::array<TransferQueue, urgency_count> writes;
    TransferQueue flushes;
    std::size_t chunks_in_flight = 0;  // those that pause before a retry count
    std::optional<Time> demand_ended;  // when the last demand read that is back came back
    bool throttled = false;            // write-back is held back for demand reads

    void push(Transfer& transfer) noexcept;
    void remove(Transfer& transfer) noexcept;  // REQUIRES: it is queued here

    void add(const Chunk& chunk) noexcept;
    void subtract(const Chunk& chunk, Time now) noexcept;

    bool demand_recent(Time now) const noexcept;
    // Notes that the queues were just offered to the device. True when write-back began to be held back.
    bool update_throttled(bool refused, Time now) noexcept;
    // When write-back that is held back may go on: no completion wakes us then, so a timer must.
    std::optional<Time> timer() const noexcept;

   private:
    TransferQueue& queue_of(const TransferRequest& request) noexcept;
    void note_waits(const TransferRequest& request) noexcept;
};

// Those of all devices, up to so many: further ones share the last one.
class DeviceQueues {
   public:
    using Time = DeviceQueue::Time;

    DeviceQueues(const InFlightLimits& limits, std::size_t most) : limits_(limits), queues_(most) {}

    DeviceQueue& of(std::uint64_t device) noexcept;
    std::span<DeviceQueue> all() noexcept { return {queues_.data(), count_}; }
    Time next_timer(Time until) const noexcept;  // of any of them, at most `until`

    void add(DeviceQueue& queue, const Chunk& chunk) noexcept;
    void subtract(DeviceQueue& queue, const Chunk& chunk, Time now) noexcept;
    struct Places {  // of the backend
        std::size_t free = 0;
        std::size_t all = 0;
    };
    // Which a queue may have: each other device that has nothing in flight keeps one, where there are as many.
    std::uint32_t free_places(const DeviceQueue& queue, Places places) const noexcept;

   private:
    const InFlightLimits limits_;
    std::vector<DeviceQueue> queues_;
    std::size_t count_ = 0;  // of them, that are some device's
    std::size_t idle_ = 0;   // of these, that have nothing in flight
};

}  // namespace penstock::aio
