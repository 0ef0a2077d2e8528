#include "aio/statistics.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

namespace penstock::aio {

namespace {

using Counter = std::atomic<std::uint64_t> LaneStatistics::*;
using Lanes = std::array<LaneStatistics, urgency_count>;

std::uint64_t sum(const Lanes& lanes, Counter counter) noexcept {
    std::uint64_t total = 0;
    for (const LaneStatistics& lane : lanes) total += (lane.*counter).load(std::memory_order_relaxed);
    return total;
}

}  // namespace

void IoStatistics::count(const TransferRequest& request, const Ended& ended) noexcept {
    LaneStatistics* const lane = request.kind == IoKind::flush ? nullptr : lane_of(request.kind, *request.urgency);
    if (lane == nullptr) {
        if (!ended.whole) return;
        bump(flushes);
        return flush_time.add(ended.latency);
    }
    bump(lane->transfers);
    if (!ended.whole) return bump(lane->errors);
    lane->latency.add(ended.latency);
    lane->wait.add(ended.wait);
}

const LaneStatistics& IoStatistics::lane(IoKind kind, Urgency urgency) const noexcept {
    PENSTOCK_CHECK(kind != IoKind::flush, "a flush belongs to no class");
    return (kind == IoKind::read ? read : write)[static_cast<std::size_t>(urgency)];
}

std::uint64_t IoStatistics::total_read_bytes() const noexcept {
    return sum(read, &LaneStatistics::bytes);
}
std::uint64_t IoStatistics::total_write_bytes() const noexcept {
    return sum(write, &LaneStatistics::bytes);
}
std::uint64_t IoStatistics::total_attempts() const noexcept {
    return sum(read, &LaneStatistics::attempts) + sum(write, &LaneStatistics::attempts);
}
std::uint64_t IoStatistics::total_resumed() const noexcept {
    return sum(read, &LaneStatistics::resumed) + sum(write, &LaneStatistics::resumed);
}
std::uint64_t IoStatistics::total_retried() const noexcept {
    return sum(read, &LaneStatistics::retried) + sum(write, &LaneStatistics::retried);
}

}  // namespace penstock::aio
