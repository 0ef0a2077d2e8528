#include "zero_infinity/device/device_arena.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/device/device.h"

#include <fmt/format.h>

#include <functional>

namespace penstock::zero {

std::uint64_t DeviceArena::allocate(std::uint64_t bytes, const std::string& use) {
    PENSTOCK_CHECK(bytes > 0, "'{}' of no bytes", use);
    const std::lock_guard lock(mutex_);
    // The last piece need not be rounded up: a budget of exactly the sum of aligned uses fits.
    const std::uint64_t offset = round_up(used_bytes_, device_alignment_bytes);
    const std::uint64_t room = offset < budget_bytes_ ? budget_bytes_ - offset : 0;
    if (bytes > room) {
        throw Error(
            ExitCode::does_not_fit,
            fmt::format(
                "Memory of device '{}': '{}' needs {} bytes, but {} of the budget of {} bytes are in use: {} bytes "
                "are missing. Raise the device's memory budget, or make its uses smaller.",
                device_, use, bytes, offset, budget_bytes_, bytes - room));
    }
    used_bytes_ = offset + bytes;
    return offset;
}

std::uint64_t DeviceArena::used_bytes() const noexcept {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
}

void DeviceArena::check_allocated(const std::byte* memory, const std::byte* range, std::uint64_t bytes) const noexcept {
    const std::less<const std::byte*> before;
    PENSTOCK_CHECK(!before(range, memory), "memory that is not of device '{}'", device_);
    const auto offset = static_cast<std::uint64_t>(range - memory);
    const std::uint64_t used = used_bytes();
    PENSTOCK_CHECK(offset <= used && bytes <= used - offset, "{} bytes at {} of device '{}', which has handed out {}",
                   bytes, offset, device_, used);
}

}  // namespace penstock::zero
