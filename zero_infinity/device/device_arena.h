// The memory of one device, handed out once and for all under its budget: arithmetic on offsets, no memory behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

namespace penstock::zero {

// Thread-safe.
class DeviceArena {
   public:
    // `device` is named in the refusal.
    DeviceArena(std::string device, std::uint64_t budget_bytes)
        : device_(std::move(device)), budget_bytes_(budget_bytes) {}

    // The offset of the next free bytes, device_alignment_bytes aligned. Throws Error (does_not_fit).
    // REQUIRES: bytes > 0.
    std::uint64_t allocate(std::uint64_t bytes, const std::string& use);
    std::uint64_t used_bytes() const noexcept;
    // Aborts unless all of the range, in an arena that begins at `memory`, is handed out.
    void check_allocated(const std::byte* memory, const std::byte* range, std::uint64_t bytes) const noexcept;

   private:
    const std::string device_;
    const std::uint64_t budget_bytes_;
    mutable std::mutex mutex_;
    std::uint64_t used_bytes_ = 0;
};

}  // namespace penstock::zero
