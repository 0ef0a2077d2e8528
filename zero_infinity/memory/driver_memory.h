// The memory that the driver's thread fills and compute works on, and what lies where in it. All of it is fixed before
// the driver's thread starts and never changes, so both threads ask; when bytes are there is the mailbox's to say.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/memory/apart_memory.h"
#include "zero_infinity/memory/bringing.h"
#include "zero_infinity/memory/gathered_residents.h"
#include "zero_infinity/memory/residents.h"
#include "zero_infinity/optimizer/update.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock::zero {

// Where a unit's weights lie while it is visited, in memory that compute reads.
struct UnitMemory {
    std::byte* weights = nullptr;  // flat trainable range
    std::byte* frozen = nullptr;   // flat frozen range
};

// Windows for weights that come and go, and those that are always there.
class WeightMemory {
   public:
    struct Apart {  // where compute reads elsewhere than where tiles arrive
        const GatheredResidents* residents = nullptr;
        std::byte* window = nullptr;
    };
    // Everything outlives it. `arrivals`: where tiles arrive that do not stay: the window; or a passage to the one that
    // is apart.
    WeightMemory(const ModelLayout& layout, const Residents& residents, std::span<std::byte> arrivals,
                 std::optional<Apart> apart);

    // Compute finds the unit's weights in its window; otherwise they are resident where it reads.
    bool passes_through(std::uint32_t unit) const noexcept;
    std::byte* resident(std::uint32_t unit) const noexcept { return residents_->group(unit); }  // null: is not
    // Compute finds it in the same place at all times.
    bool stays(std::uint32_t unit) const noexcept { return at(unit) != nullptr; }
    std::byte* window(std::uint64_t offset_bytes) const noexcept;  // where compute reads
    std::span<std::byte> arrivals() const noexcept { return arrivals_; }
    // `offset_bytes` is its place in the window, where it passes through.
    UnitMemory unit(std::uint32_t unit, std::uint64_t offset_bytes) const;

   private:
    // Where compute reads a unit that is resident there; else null.
    std::byte* at(std::uint32_t unit) const noexcept {
        return apart_ ? apart_->residents->group(unit) : residents_->group(unit);
    }

    const ModelLayout* layout_;
    const Residents* residents_;
    std::span<std::byte> arrivals_;
    std::optional<Apart> apart_;
};

// One tile in host memory, to be updated in place.
struct StagedTile {
    UnitTile tile;
    std::uint64_t number = 0;  // in ModelLayout::tiles()
    TileView view;
    const std::byte* gradient = nullptr;  // that came from the spill, until it is put back; null: none did
};

// Slots of tiles that are updated at once.
struct StagingSlots {
    std::uint32_t count = 0;
    std::uint64_t gradient_bytes = 0;  // whole granules, of a tile's gradient that comes with its states; 0: none does
    std::uint64_t bytes(const ModelLayout& layout) const { return layout.staging_tile_bytes() + gradient_bytes; }
};

// Where the states of tiles lie while they are updated: in a slot, unless they are resident; and their gradients, where
// they come from the spill. Their weights are updated where they are: in the window, on their way to a device, or
// resident.
class StagingMemory {
   public:
    // Everything outlives it. `data`: slots.count × slots.bytes(layout). REQUIRES: at least one slot.
    StagingMemory(const ModelLayout& layout, const Residents& residents, std::byte* data, StagingSlots slots);

    std::uint32_t slots() const noexcept { return slots_.count; }
    // Of that tile of ModelLayout::tiles(), its extent; empty where the unit has none.
    std::span<std::byte> states(std::uint64_t number, std::uint32_t slot) const;
    std::span<std::byte> gradient(std::uint32_t slot) const;
    std::byte* resident_weights(std::uint64_t number) const;  // null where they are not

   private:
    const ModelLayout* layout_;
    const Residents* residents_;
    std::byte* data_;
    StagingSlots slots_;
    std::uint64_t slot_bytes_;
};

struct WindowSizes {
    std::uint64_t window_bytes = 0;
    std::uint64_t passage_bytes = 0;  // MemoryPlan's
};

// All of it: takes the leases and reads or fills the resident objects. The constructor blocks and throws as that of
// Residents.
class DriverMemory {
   public:
    DriverMemory(aio::Io& io, store::TensorStore& store, pool::PinnedPool& pool, Device& device, Bringing& bringing,
                 const ModelLayout& layout, StagingSlots slots, WindowSizes windows, const FillResidents& fill,
                 Lane* lane = nullptr);
    DriverMemory(const DriverMemory&) = delete;
    DriverMemory& operator=(const DriverMemory&) = delete;

    const WeightMemory& weights() const noexcept { return weights_; }
    const StagingMemory& staging() const noexcept { return staging_; }
    const Residents& residents() const noexcept { return residents_; }
    const GatheredResidents& gathered_residents() const noexcept { return gathered_residents_; }

   private:
    Residents residents_;
    ApartMemory apart_memory_;
    GatheredResidents gathered_residents_;
    pool::Lease arrivals_;
    pool::Lease buffers_;
    WeightMemory weights_;
    StagingMemory staging_;
};

}  // namespace penstock::zero
