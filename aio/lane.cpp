#include "aio/lane.h"

#include <algorithm>
#include <utility>

namespace penstock {

// ---------------------------------------------------------------- what waits

TransferQueue& Lane::queue_of(const TransferRequest& request) noexcept {
    if (request.kind == IoKind::flush) return flushes;
    return (request.kind == IoKind::read ? reads : writes)[static_cast<std::size_t>(*request.urgency)];
}

void Lane::note_waits(const TransferRequest& request) noexcept {
    if (request.kind == IoKind::flush) return;
    const auto urgency = static_cast<std::size_t>(*request.urgency);
    (request.kind == IoKind::read ? load.read_waits : load.write_waits)[urgency] = !queue_of(request).empty();
}

void Lane::push(Transfer& transfer) noexcept {
    queue_of(transfer.request()).push(transfer);
    note_waits(transfer.request());
}

void Lane::remove(Transfer& transfer) noexcept {
    queue_of(transfer.request()).remove(transfer);
    note_waits(transfer.request());
}

bool Lane::unused() const noexcept {
    const auto empty = [](const TransferQueue& queue) { return queue.empty(); };
    return chunks_in_flight == 0 && flushes.empty() && std::all_of(reads.begin(), reads.end(), empty) &&
           std::all_of(writes.begin(), writes.end(), empty);
}

// ---------------------------------------------------------------- what is in flight

void Lane::add(const Chunk& chunk) noexcept {
    ++chunks_in_flight;
    const auto urgency = static_cast<std::size_t>(chunk.urgency);
    if (chunk.kind == IoKind::read) load.read_bytes[urgency] += chunk.issued_bytes;
    if (chunk.kind == IoKind::write) load.write_bytes[urgency] += chunk.issued_bytes;
}

void Lane::subtract(const Chunk& chunk, Time now) noexcept {
    --chunks_in_flight;
    const auto urgency = static_cast<std::size_t>(chunk.urgency);
    if (chunk.kind == IoKind::read) load.read_bytes[urgency] -= chunk.issued_bytes;
    if (chunk.kind == IoKind::write) load.write_bytes[urgency] -= chunk.issued_bytes;
    if (chunk.kind == IoKind::read && chunk.urgency == Urgency::demand) demand_ended = now;
}

// ---------------------------------------------------------------- the throttle

bool Lane::demand_recent(Time now) const noexcept {
    if (load.read_bytes[static_cast<std::size_t>(Urgency::demand)] > 0) return true;
    return demand_ended && now - *demand_ended < limits.calm;
}

bool Lane::update_throttled(bool refused, Time now) noexcept {
    const bool wanted = load.write_waits[static_cast<std::size_t>(Urgency::write_back)];
    const bool demanded = load.read_waits[static_cast<std::size_t>(Urgency::demand)] || demand_recent(now);
    return !std::exchange(throttled, refused || (throttled && wanted && demanded)) && refused;
}

std::optional<Lane::Time> Lane::timer() const noexcept {
    const auto demand = static_cast<std::size_t>(Urgency::demand);
    if (!throttled || load.read_bytes[demand] > 0 || load.read_waits[demand] || !demand_ended) return std::nullopt;
    return *demand_ended + limits.calm;
}

}  // namespace penstock
