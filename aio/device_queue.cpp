#include "aio/device_queue.h"

#include "aio/words/io_error.h"

#include <algorithm>
#include <utility>

namespace penstock::aio {

// ---------------------------------------------------------------- what waits

TransferQueue& DeviceQueue::queue_of(const TransferRequest& request) noexcept {
    if (request.kind == IoKind::flush) return flushes;
    return (request.kind == IoKind::read ? reads : writes)[static_cast<std::size_t>(*request.urgency)];
}

void DeviceQueue::note_waits(const TransferRequest& request) noexcept {
    if (request.kind == IoKind::flush) return;
    const auto urgency = static_cast<std::size_t>(*request.urgency);
    (request.kind == IoKind::read ? load.read_waits : load.write_waits)[urgency] = !queue_of(request).empty();
}

void DeviceQueue::push(Transfer& transfer) noexcept {
    queue_of(transfer.request()).push(transfer);
    note_waits(transfer.request());
}

void DeviceQueue::remove(Transfer& transfer) noexcept {
    queue_of(transfer.request()).remove(transfer);
    note_waits(transfer.request());
}

// ---------------------------------------------------------------- what is in flight

void DeviceQueue::add(const Chunk& chunk) noexcept {
    ++chunks_in_flight;
    const auto urgency = static_cast<std::size_t>(chunk.urgency);
    if (chunk.kind == IoKind::read) load.read_bytes[urgency] += chunk.issued_bytes;
    if (chunk.kind == IoKind::write) load.write_bytes[urgency] += chunk.issued_bytes;
}

void DeviceQueue::subtract(const Chunk& chunk, Time now) noexcept {
    --chunks_in_flight;
    const auto urgency = static_cast<std::size_t>(chunk.urgency);
    if (chunk.kind == IoKind::read) load.read_bytes[urgency] -= chunk.issued_bytes;
    if (chunk.kind == IoKind::write) load.write_bytes[urgency] -= chunk.issued_bytes;
    if (chunk.kind == IoKind::read && chunk.urgency == Urgency::demand) demand_ended = now;
}

// ---------------------------------------------------------------- the throttle

bool DeviceQueue::demand_recent(Time now) const noexcept {
    if (load.read_bytes[static_cast<std::size_t>(Urgency::demand)] > 0) return true;
    return demand_ended && now - *demand_ended < limits.calm;
}

bool DeviceQueue::update_throttled(bool refused, Time now) noexcept {
    const bool wanted = load.write_waits[static_cast<std::size_t>(Urgency::write_back)];
    const bool demanded = load.read_waits[static_cast<std::size_t>(Urgency::demand)] || demand_recent(now);
    return !std::exchange(throttled, refused || (throttled && wanted && demanded)) && refused;
}

std::optional<DeviceQueue::Time> DeviceQueue::timer() const noexcept {
    const auto demand = static_cast<std::size_t>(Urgency::demand);
    if (!throttled || load.read_bytes[demand] > 0 || load.read_waits[demand] || !demand_ended) return std::nullopt;
    return *demand_ended + limits.calm;
}

// ---------------------------------------------------------------- all devices

DeviceQueue& DeviceQueues::of(std::uint64_t device) noexcept {
    for (DeviceQueue& queue : all()) {
        if (queue.device == device) return queue;
    }
    if (count_ == queues_.size()) return queues_.back();
    DeviceQueue& queue = queues_[count_++];
    queue.device = device;
    queue.limits = limits_;
    ++idle_;
    return queue;
}

std::uint32_t DeviceQueues::free_places(const DeviceQueue& queue, Places places) const noexcept {
    const std::size_t others = idle_ - (queue.chunks_in_flight == 0 ? 1 : 0);
    const std::size_t kept = count_ > places.all ? 0 : others;
    return static_cast<std::uint32_t>(places.free - std::min(kept, places.free));
}

DeviceQueues::Time DeviceQueues::next_timer(Time until) const noexcept {
    for (std::size_t i = 0; i < count_; ++i) until = std::min(until, queues_[i].timer().value_or(until));
    return until;
}

void DeviceQueues::add(DeviceQueue& queue, const Chunk& chunk) noexcept {
    if (queue.chunks_in_flight == 0) --idle_;
    queue.add(chunk);
}

void DeviceQueues::subtract(DeviceQueue& queue, const Chunk& chunk, Time now) noexcept {
    queue.subtract(chunk, now);
    if (queue.chunks_in_flight == 0) ++idle_;
}

}  // namespace penstock::aio
