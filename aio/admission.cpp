#include "aio/admission.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <algorithm>
#include <numeric>

namespace penstock::aio {

namespace {

using Bytes = std::array<std::uint64_t, urgency_count>;
using Waits = std::array<bool, urgency_count>;

constexpr std::size_t index(Urgency urgency) noexcept {
    return static_cast<std::size_t>(urgency);
}

std::uint64_t sum(const Bytes& bytes) noexcept {
    return std::accumulate(bytes.begin(), bytes.end(), std::uint64_t{0});
}

// Of the classes before `end`.
bool any_waits(const Waits& waits, std::size_t end) noexcept {
    return std::any_of(waits.begin(), waits.begin() + static_cast<std::ptrdiff_t>(end), [](bool one) { return one; });
}

std::uint64_t class_bound(const InFlightLimits& limits, IoKind kind, Urgency urgency) noexcept {
    const std::uint64_t direction = kind == IoKind::read ? limits.read_bytes : limits.write_bytes;
    switch (urgency) {
        case Urgency::demand:
            return direction;
        case Urgency::prefetch:
            return limits.prefetch_bytes;
        case Urgency::write_back:
            return limits.write_back_bytes;
        case Urgency::scrub:
            return limits.scrub_bytes;
    }
    return direction;
}

bool within_bounds(const InFlightLimits& limits, const DeviceLoad& load, IoKind kind, Urgency urgency,
                   std::uint64_t bytes) noexcept {
    const Bytes& in_flight = kind == IoKind::read ? load.read_bytes : load.write_bytes;
    std::uint64_t of_class = in_flight[index(urgency)];
    if (urgency == Urgency::scrub) of_class = load.read_bytes[index(urgency)] + load.write_bytes[index(urgency)];
    const std::uint64_t of_direction = kind == IoKind::read ? limits.read_bytes : limits.write_bytes;
    return of_class + bytes <= class_bound(limits, kind, urgency) && sum(in_flight) + bytes <= of_direction;
}

}  // namespace

void check_limits(const InFlightLimits& limits, std::uint32_t chunk_bytes) {
    for (const std::uint64_t bound : {limits.read_bytes, limits.prefetch_bytes, limits.write_bytes,
                                      limits.write_back_bytes, limits.throttled_bytes, limits.scrub_bytes})
        PENSTOCK_CHECK(bound >= chunk_bytes, "a bound of {} bytes in flight is below a chunk of {}", bound,
                       chunk_bytes);
    PENSTOCK_CHECK(limits.prefetch_bytes + limits.scrub_bytes <= limits.read_bytes,
                   "prefetch {} and scrub {} are above all reads {}", limits.prefetch_bytes, limits.scrub_bytes,
                   limits.read_bytes);
    PENSTOCK_CHECK(limits.throttled_bytes <= limits.write_back_bytes && limits.write_back_bytes <= limits.write_bytes,
                   "throttled {}, write-back {} and all writes {} do not ascend", limits.throttled_bytes,
                   limits.write_back_bytes, limits.write_bytes);
    PENSTOCK_CHECK(limits.calm >= std::chrono::nanoseconds(0) && limits.calm <= std::chrono::hours(1), "calm of {} ns",
                   limits.calm.count());
}

InFlightLimits part_of(const InFlightLimits& limits, std::uint32_t sharing, std::uint32_t chunk_bytes) noexcept {
    const std::uint64_t chunk = chunk_bytes;
    const auto part = [&](std::uint64_t bytes) { return std::max(bytes / sharing, chunk); };
    InFlightLimits own = limits;
    own.read_bytes = std::max(part(limits.read_bytes), 2 * chunk);  // a prefetch and a scrub
    own.scrub_bytes = std::min(part(limits.scrub_bytes), own.read_bytes - chunk);
    own.prefetch_bytes = std::min(part(limits.prefetch_bytes), own.read_bytes - own.scrub_bytes);
    own.write_back_bytes = part(limits.write_back_bytes);
    own.write_bytes = std::max(part(limits.write_bytes), own.write_back_bytes);
    own.throttled_bytes = std::min(part(limits.throttled_bytes), own.write_back_bytes);
    return own;
}

Admission admit(const InFlightLimits& limits, const DeviceLoad& load, IoKind kind, Urgency urgency,
                std::uint64_t bytes) noexcept {
    PENSTOCK_CHECK(kind != IoKind::flush, "a flush is not bounded");
    const bool reading = kind == IoKind::read;
    const Bytes& in_flight = reading ? load.read_bytes : load.write_bytes;
    const Waits& waits = reading ? load.read_waits : load.write_waits;
    const std::uint64_t direction_bytes = sum(in_flight);
    const bool device_idle = sum(load.read_bytes) + sum(load.write_bytes) == 0;

    const bool any_place = (reading && urgency == Urgency::demand) || device_idle;
    if (load.free_places <= (any_place ? 0 : limits.demand_places)) return Admission::full;
    if (any_waits(waits, index(urgency))) return Admission::full;
    if (urgency == Urgency::scrub &&
        (any_waits(load.read_waits, index(urgency)) || any_waits(load.write_waits, index(urgency))))
        return Admission::full;
    if (direction_bytes == 0) return Admission::yes;
    const bool demand_about = load.demand_recent || load.read_waits[index(Urgency::demand)];
    if (!reading && urgency == Urgency::write_back && demand_about &&
        in_flight[index(urgency)] + bytes > limits.throttled_bytes)
        return Admission::throttled;
    return within_bounds(limits, load, kind, urgency, bytes) ? Admission::yes : Admission::full;
}

}  // namespace penstock::aio
