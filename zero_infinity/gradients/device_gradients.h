// Where a device with memory of its own sums gradients: windows in that memory, and the copies between them and host
// memory.
#pragma once

#include "zero_infinity/device/device.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// Compute thread only. The device outlives it. Host memory of a copy stays valid until wait_for() its ticket, or
// wait(). A copy that takes longer than the deadline is an Error (internal).
//
// Two windows, each for the largest unit: a unit's copy goes out while the next one is summed in the other. Or one per
// unit, where the device has room for all: each stays in its own until host memory is looked at. None for a device that
// shares host memory.
class DeviceGradients {
   public:
    // `bytes`: gradient_window_bytes(), or of all units; 0: no windows.
    DeviceGradients(Device& device, std::uint64_t bytes, std::span<const std::uint64_t> unit_bytes,
                    std::chrono::seconds deadline);
    DeviceGradients(const DeviceGradients&) = delete;
    DeviceGradients& operator=(const DeviceGradients&) = delete;
    // A step may have been left by an exception: its copies still write into host memory. False: they may write at any
    // time from now on, for the device is lost.
    bool end() noexcept;

    bool shares_host_memory() const noexcept { return device_->shares_host_memory(); }
    bool has(std::uint32_t unit) const noexcept { return find(unit) != nullptr; }
    std::optional<std::uint32_t> first() const noexcept;  // of the units that have a window

    // To give a unit a window: what is in_the_way() of it is copied out; enter(); where it has sums in host memory,
    // copy_in(). Compute waits until the window may be written, and read. REQUIRES (enter): nothing is in the way.
    std::optional<std::uint32_t> in_the_way(std::uint32_t unit) const;
    void enter(std::uint32_t unit);
    // What is on its way out may be what copy_in() reads. A stream's copy comes after it by itself; where compute is
    // the calling thread, that waits.
    void wait_before_copy_in() const;
    Ticket copy_in(std::uint32_t unit, const std::byte* host);
    std::byte* memory(std::uint32_t unit) const;  // REQUIRES: has()

    // What the window holds goes to host memory, and stays in it: what comes to the unit first is a write(), which
    // compute waits with until the copy has ended. REQUIRES, for both: has()
    void copy_ahead(std::uint32_t unit, std::byte* host);
    void write(std::uint32_t unit);
    // The unit has no window any more. Copies nothing where copy_ahead() came behind the last write(). REQUIRES: has();
    // `host` is as there.
    Ticket copy_out(std::uint32_t unit, std::byte* host);

    Ticket newest_out() const noexcept { return last_out_; }  // reached when all that was copied out is there
    void wait_for(Ticket ticket) const;                       // any thread
    void wait() const;                                        // until all that was copied out is there

   private:
    struct Window {
        std::byte* data = nullptr;
        std::optional<std::uint32_t> unit;  // whose gradients are summed in it
        Ticket copied;                      // until when the last copy reads it
        bool ahead = false;                 // that copy is of what it holds
    };

    const Window* find(std::uint32_t unit) const noexcept;
    const Window& window_of(std::uint32_t unit) const;
    Window& window_of(std::uint32_t unit);
    bool all_stay() const noexcept { return windows_.size() == unit_bytes_.size(); }
    void compute_after(Ticket ticket) const;

    // Constant after construction.
    Device* device_;
    std::vector<std::uint64_t> unit_bytes_;
    std::chrono::seconds deadline_;

    std::vector<Window> windows_;  // none, two, or one per unit
    std::size_t turn_ = 0;         // of two, the one that was entered last
    Ticket last_out_;              // the newest copy to host memory
};

}  // namespace penstock::zero
