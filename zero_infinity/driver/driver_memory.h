// The memory that the driver's thread fills and compute works on, and what lies where in it. All of it is fixed before
// the driver's thread starts and never changes, so both threads ask; when bytes are there is the mailbox's to say.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/driver/residents.h"
#include "zero_infinity/optimizer/update.h"
#include "zero_infinity/plan/model_layout.h"
#include "zero_infinity/plan/plan.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::zero {

// Where a unit's weights lie while it is visited, in memory that compute reads.
struct UnitMemory {
    std::byte* weights = nullptr;  // flat trainable range
    std::byte* frozen = nullptr;   // flat frozen range
};

// The weights of one pass: windows in host memory and, where it has memory of its own, the device's.
class PassMemory {
   public:
    // Everything outlives it. `device_window` is null where the schedules have none.
    PassMemory(const ModelLayout& layout, const Residents& residents, PassSchedules schedules, std::byte* host_window,
               std::byte* device_window);

    const PassSchedules& schedules() const noexcept { return schedules_; }
    std::uint32_t visit_count() const noexcept;
    std::byte* host(const Fetch& fetch) const noexcept { return host_window_ + fetch.offset_bytes; }
    std::byte* device(const Fetch& fetch) const noexcept { return device_window_ + fetch.offset_bytes; }
    // REQUIRES: the unit is one of the visit's groups.
    UnitMemory unit(std::uint32_t visit, std::uint32_t unit) const;

   private:
    const ModelLayout* layout_;
    const Residents* residents_;
    PassSchedules schedules_;
    std::byte* host_window_;
    std::byte* device_window_;
};

// One tile in host memory, to be updated in place.
struct StagedTile {
    UnitTile tile;
    std::uint64_t number = 0;  // in ModelLayout::tiles()
    TileView view;
};

// The tiles of an update: tile n lies in staging buffer n % buffers, but for what of it is resident.
class StagingMemory {
   public:
    struct Place {
        std::span<std::byte> weights;  // extents; empty where the unit has none
        std::span<std::byte> states;
    };

    // Everything outlives it. `data`: buffers × layout.staging_tile_bytes(). REQUIRES: buffers > 0.
    StagingMemory(const ModelLayout& layout, const Residents& residents, std::byte* data, std::uint32_t buffers);

    std::uint32_t buffers() const noexcept { return buffers_; }
    std::uint64_t tile_count() const noexcept { return layout_->tiles().size(); }
    Place place(std::uint64_t number) const;
    StagedTile tile(std::uint64_t number) const;

   private:
    const ModelLayout* layout_;
    const Residents* residents_;
    std::byte* data_;
    std::uint32_t buffers_;
    std::uint64_t buffer_bytes_;
};

// All of it: takes the leases and reads the resident objects. The constructor blocks and throws as that of Residents.
class DriverMemory {
   public:
    DriverMemory(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, Device& device,
                 const ModelLayout& layout, std::uint32_t staging_tiles, PassSchedules training,
                 PassSchedules inference);
    DriverMemory(const DriverMemory&) = delete;
    DriverMemory& operator=(const DriverMemory&) = delete;

    const Residents& residents() const noexcept { return residents_; }
    const PassMemory& training() const noexcept { return training_; }
    const PassMemory& inference() const noexcept { return inference_; }
    const StagingMemory& staging() const noexcept { return staging_; }

   private:
    Residents residents_;
    pool::Lease window_;
    pool::Lease buffers_;
    std::byte* device_window_;
    PassMemory training_;
    PassMemory inference_;
    StagingMemory staging_;
};

}  // namespace penstock::zero
