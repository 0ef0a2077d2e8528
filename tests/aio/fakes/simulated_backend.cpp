#include "tests/aio/fakes/simulated_backend.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::aio {

SimulatedBackend::SimulatedBackend(std::vector<DeviceModel> devices, std::size_t depth) : depth_(depth) {
    PENSTOCK_CHECK(!devices.empty(), "no device is simulated");
    for (const DeviceModel& model : devices) {
        PENSTOCK_CHECK(model.channels > 0 && model.read_bytes_per_second > 0 && model.write_bytes_per_second > 0,
                       "a device without channels or bandwidth");
        devices_.push_back({.model = model, .waiting = {}, .in_service = {}, .halted_at = {}});
    }
}

SimulatedBackend::~SimulatedBackend() {
    PENSTOCK_CHECK(in_flight_.empty(), "a simulated device ends with {} attempts in flight", in_flight_.size());
}

void SimulatedBackend::place(int fd, std::size_t device) {
    PENSTOCK_CHECK(device < devices_.size(), "device {} of {}", device, devices_.size());
    places_[fd] = device;
}

std::vector<std::byte>& SimulatedBackend::carry(int fd) {
    return contents_[fd];
}

void SimulatedBackend::halt(std::size_t index, bool halted) {
    Device& device = devices_.at(index);
    if (halted == device.halted_at.has_value()) return;
    if (halted) {
        device.halted_at = now_;
        return;
    }
    const std::chrono::nanoseconds lost = now_ - *std::exchange(device.halted_at, std::nullopt);
    for (Service& service : device.in_service) service.ends += lost;
    begin_waiting(device, now_);
}

// ---------------------------------------------------------------- the backend

bool SimulatedBackend::submit(Attempt& attempt) {
    if (in_flight_.size() == depth_) return false;
    in_flight_.push_back(&attempt);
    Device& device = device_of(attempt);
    device.waiting.push_back(&attempt);
    begin_waiting(device, now_);
    return true;
}

Attempt* SimulatedBackend::reap(std::chrono::nanoseconds timeout) {
    end_until(now_);
    if (finished_ == nullptr && !woken_.exchange(false) && timeout > std::chrono::nanoseconds(0)) {
        const Time until = now_ + timeout;
        now_ = std::min(until, next_end().value_or(until));
        end_until(now_);
    }
    finished_end_ = &finished_;
    return std::exchange(finished_, nullptr);
}

// ---------------------------------------------------------------- the devices

SimulatedBackend::Device& SimulatedBackend::device_of(const Attempt& attempt) {
    const auto found = places_.find(attempt.fd);
    return devices_[found == places_.end() ? 0 : found->second];
}

void SimulatedBackend::begin_waiting(Device& device, Time now) {
    while (!device.halted_at && !device.waiting.empty() && device.in_service.size() < device.model.channels) {
        Attempt* attempt = device.waiting.front();
        device.waiting.erase(device.waiting.begin());
        const std::chrono::nanoseconds time = duration(device, *attempt);
        device.in_service.push_back({.attempt = attempt, .ends = now + time});
    }
}

std::chrono::nanoseconds SimulatedBackend::duration(const Device& device, const Attempt& attempt) const {
    const DeviceModel& model = device.model;
    if (attempt.kind == IoKind::flush) return model.flush_latency;
    const bool reading = attempt.kind == IoKind::read;
    const double rate = reading ? model.read_bytes_per_second : model.write_bytes_per_second;
    const double moving_ns = 1e9 * attempt.bytes * static_cast<double>(model.channels) / rate;
    const auto latency_ns = static_cast<double>((reading ? model.read_latency : model.write_latency).count());
    const auto other = std::count_if(device.in_service.begin(), device.in_service.end(), [&](const Service& service) {
        return service.attempt->kind == (reading ? IoKind::write : IoKind::read);
    });
    const double others = static_cast<double>(std::max<std::size_t>(model.channels - 1, 1));
    const double slowed = 1.0 + model.mixed_penalty * static_cast<double>(other) / others;
    return std::chrono::nanoseconds(static_cast<std::int64_t>((latency_ns + moving_ns) * slowed));
}

std::optional<SimulatedBackend::Time> SimulatedBackend::next_end() const {
    std::optional<Time> next;
    for (const Device& device : devices_) {
        if (device.halted_at) continue;
        for (const Service& service : device.in_service) next = std::min(next.value_or(service.ends), service.ends);
    }
    return next;
}

// In the order of time, because each end lets another begin.
void SimulatedBackend::end_until(Time now) {
    for (;;) {
        const std::optional<Time> next = next_end();
        if (!next || *next > now) return;
        for (Device& device : devices_) {
            if (device.halted_at) continue;
            const auto due = std::find_if(device.in_service.begin(), device.in_service.end(),
                                          [&](const Service& service) { return service.ends == *next; });
            if (due == device.in_service.end()) continue;
            Attempt& attempt = *due->attempt;
            device.in_service.erase(due);
            end(attempt);
            begin_waiting(device, *next);
        }
    }
}

void SimulatedBackend::end(Attempt& attempt) {
    in_flight_.erase(std::find(in_flight_.begin(), in_flight_.end(), &attempt));
    attempt.result = move_bytes(attempt);
    attempt.next = nullptr;
    *finished_end_ = &attempt;
    finished_end_ = &attempt.next;
}

std::int32_t SimulatedBackend::move_bytes(Attempt& attempt) {
    const auto found = contents_.find(attempt.fd);
    if (attempt.kind == IoKind::flush) return 0;
    if (found == contents_.end()) return static_cast<std::int32_t>(attempt.bytes);
    std::vector<std::byte>& content = found->second;
    if (attempt.kind == IoKind::write) {
        content.resize(std::max<std::size_t>(content.size(), attempt.offset_bytes + attempt.bytes));
        std::memcpy(content.data() + attempt.offset_bytes, attempt.data, attempt.bytes);
        return static_cast<std::int32_t>(attempt.bytes);
    }
    const std::size_t there = content.size() - std::min<std::size_t>(content.size(), attempt.offset_bytes);
    const std::size_t bytes = std::min<std::size_t>(there, attempt.bytes);
    if (bytes > 0) std::memcpy(attempt.data, content.data() + attempt.offset_bytes, bytes);
    return static_cast<std::int32_t>(bytes);
}

}  // namespace penstock::aio
