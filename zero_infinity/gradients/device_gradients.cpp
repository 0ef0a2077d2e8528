#include "zero_infinity/gradients/device_gradients.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/plan/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <numeric>
#include <utility>

namespace penstock::zero {

DeviceGradients::DeviceGradients(Device& device, std::uint64_t bytes, std::span<const std::uint64_t> unit_bytes,
                                 std::chrono::seconds deadline)
    : device_(&device), unit_bytes_(unit_bytes.begin(), unit_bytes.end()), deadline_(deadline) {
    if (bytes == 0) return;
    std::byte* data = device.allocate(bytes, gradients_use);
    if (bytes < std::accumulate(unit_bytes_.begin(), unit_bytes_.end(), std::uint64_t{0})) {
        windows_ = {Window{data, {}, {}}, Window{data + bytes / 2, {}, {}}};
        return;
    }
    for (const std::uint64_t each : unit_bytes_) {
        windows_.push_back({data, {}, {}});
        data += each;
    }
}

bool DeviceGradients::end() noexcept {
    bool ended = true;
    for (const Window& window : windows_) {
        try {
            ended = device_->wait(window.copied, deadline_) && ended;
        } catch (const std::exception&) {
            ended = false;
        }
    }
    return ended;
}

const DeviceGradients::Window* DeviceGradients::find(std::uint32_t unit) const noexcept {
    const auto found =
        std::find_if(windows_.begin(), windows_.end(), [&](const Window& window) { return window.unit == unit; });
    return found == windows_.end() ? nullptr : &*found;
}

const DeviceGradients::Window& DeviceGradients::window_of(std::uint32_t unit) const {
    const Window* found = find(unit);
    PENSTOCK_CHECK(found != nullptr, "the gradients of unit {} are in no window of the device", unit);
    return *found;
}

DeviceGradients::Window& DeviceGradients::window_of(std::uint32_t unit) {
    return const_cast<Window&>(std::as_const(*this).window_of(unit));
}

std::optional<std::uint32_t> DeviceGradients::first() const noexcept {
    for (const Window& window : windows_)
        if (window.unit) return window.unit;
    return std::nullopt;
}

// ---------------------------------------------------------------- in

// Of two windows, the one whose turn it is not was copied out before this one was entered.
std::optional<std::uint32_t> DeviceGradients::in_the_way(std::uint32_t unit) const {
    if (all_stay() || windows_[turn_].unit == unit) return std::nullopt;
    return windows_[turn_].unit;
}

void DeviceGradients::enter(std::uint32_t unit) {
    if (!all_stay()) turn_ = 1 - turn_;
    Window& window = windows_[all_stay() ? unit : turn_];
    PENSTOCK_CHECK(!window.unit, "gradients of unit {} in the window of those of unit {}", unit, *window.unit);
    compute_after(window.copied);
    window.unit = unit;
}

void DeviceGradients::wait_before_copy_in() const {
    if (device_->computes_on_caller()) wait_for(last_out_);
}

Ticket DeviceGradients::copy_in(std::uint32_t unit, const std::byte* host) {
    const Ticket in = device_->copy_in(window_of(unit).data, host, unit_bytes_[unit], last_out_);
    compute_after(in);
    return in;
}

std::byte* DeviceGradients::memory(std::uint32_t unit) const {
    return window_of(unit).data;
}

// ---------------------------------------------------------------- out

void DeviceGradients::copy_ahead(std::uint32_t unit, std::byte* host) {
    Window& window = window_of(unit);
    if (std::exchange(window.ahead, true)) return;
    window.copied = last_out_ = device_->copy_out(host, window.data, unit_bytes_[unit]);
}

void DeviceGradients::write(std::uint32_t unit) {
    Window& window = window_of(unit);
    if (std::exchange(window.ahead, false)) compute_after(window.copied);
}

Ticket DeviceGradients::copy_out(std::uint32_t unit, std::byte* host) {
    copy_ahead(unit, host);
    Window& window = window_of(unit);
    window.unit.reset();
    window.ahead = false;
    return window.copied;
}

// A stream waits by itself; a thread, until the deadline.
void DeviceGradients::compute_after(Ticket ticket) const {
    if (device_->computes_on_caller()) wait_for(ticket);
    device_->compute_after(ticket);
}

void DeviceGradients::wait_for(Ticket ticket) const {
    if (device_->wait(ticket, deadline_)) return;
    throw Error(ExitCode::internal,
                fmt::format("gradients are on their way between device '{}' and host memory for more than {} s: "
                            "the device is stuck; the last committed step is safe",
                            device_->name(), deadline_.count()));
}

void DeviceGradients::wait() const {
    for (const Window& window : windows_) wait_for(window.copied);
}

}  // namespace penstock::zero
