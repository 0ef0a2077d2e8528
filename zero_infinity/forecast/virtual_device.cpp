#include "zero_infinity/forecast/virtual_device.h"

#include "aio/words/check.h"

#include <algorithm>
#include <limits>

namespace penstock::zero {
namespace {

constexpr Direction directions[] = {Direction::read, Direction::write};
constexpr double ended_bytes = 1e-3;  // what is left of a transfer by rounding
constexpr double ended_seconds = 1e-12;

void check(const DeviceRates& rates) {
    PENSTOCK_CHECK(rates.read > 0 && rates.write > 0 && rates.both > 0, "a device of {}, {} and {} bytes/s", rates.read,
                   rates.write, rates.both);
}

}  // namespace

double transfer_seconds(const DeviceRates& rates, double read_bytes, double write_bytes) {
    check(rates);
    return std::max({read_bytes / rates.read, write_bytes / rates.write, (read_bytes + write_bytes) / rates.both});
}

VirtualDevice::VirtualDevice(DeviceRates rates) : rates_(rates) {
    check(rates_);
}

void VirtualDevice::begin(const VirtualTransfer& transfer) {
    queues_[index(transfer.direction)].push_back({transfer, transfer.bytes});
}

// The head is on its way and stays.
void VirtualDevice::raise(std::uint64_t number) {
    std::deque<Waiting>& reads = queues_[index(Direction::read)];
    const auto found = std::find_if(reads.begin(), reads.end(),
                                    [&](const Waiting& waiting) { return waiting.transfer.number == number; });
    if (found == reads.end() || found == reads.begin() || found->raised) return;
    found->raised = true;
    const auto first = std::find_if(reads.begin() + 1, found, [](const Waiting& waiting) { return !waiting.raised; });
    std::rotate(first, found, found + 1);
}

double VirtualDevice::rate(Direction direction) const noexcept {
    if (!busy(direction) || held_ > 0) return 0;
    const double alone = direction == Direction::read ? rates_.read : rates_.write;
    const bool shared = busy(Direction::read) && busy(Direction::write);
    return share_ * (shared ? std::min(alone, rates_.both / 2) : alone);
}

double VirtualDevice::seconds_to_next() const noexcept {
    PENSTOCK_CHECK(!idle(), "the end of a transfer is wanted, but none is under way");
    if (held_ > 0) return held_;
    double seconds = std::numeric_limits<double>::infinity();
    for (const Direction direction : directions)
        if (busy(direction)) seconds = std::min(seconds, queue(direction).front().left / rate(direction));
    return seconds;
}

void VirtualDevice::advance(double seconds) noexcept {
    const double rates[] = {rate(Direction::read), rate(Direction::write)};
    for (const Direction direction : directions) {
        if (rates[index(direction)] == 0) continue;
        const double bytes = rates[index(direction)] * seconds;
        queues_[index(direction)].front().left -= bytes;
        moved_[index(direction)] += bytes;
        busy_[index(direction)] += seconds;
    }
    held_ = held_ - seconds > ended_seconds ? held_ - seconds : 0;
}

std::optional<VirtualTransfer> VirtualDevice::take_ended() {
    for (const Direction direction : directions) {
        std::deque<Waiting>& queue = queues_[index(direction)];
        if (queue.empty() || queue.front().left > ended_bytes) continue;
        const VirtualTransfer ended = queue.front().transfer;
        queue.pop_front();
        return ended;
    }
    return std::nullopt;
}

}  // namespace penstock::zero
