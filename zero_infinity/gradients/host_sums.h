// Gradients in host memory: one flat range per unit, then one per borrowed parameter. Memory of a unit's own, memory
// that units share, or slots whose sums leave for NVMe or for the other ranks.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/gradients/gradient_ledger.h"
#include "zero_infinity/gradients/more_memory.h"
#include "zero_infinity/gradients/spilled_sums.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/plan/memory_plan.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

struct HostSumsOptions {
    PlaneType type = PlaneType::fp32;
    GradientMemory memory = GradientMemory::all_units;
    // Of GradientMemory::nvme: who moves them, which is not called before the first gradient.
    store::Spill* spill = nullptr;
    Driver* driver = nullptr;
    MoreMemoryLimit more;  // of GradientMemory::two_units: what units may take beside the slots
};

// Compute thread only. Everything outlives it, but for the driver, which ends before its memory.
//
// What a rank adds to is a unit's whole trainable range; what it updates with and norms is its shard of that range, in
// tiles. With one rank these are the same elements in the same memory.
class HostSums {
   public:
    // Takes its leases here, and reserves room on disk; allocates no memory later, but for keep().
    HostSums(const ModelLayout& layout, const HostSumsOptions& options, pool::PinnedPool& pool);
    HostSums(const HostSums&) = delete;
    HostSums& operator=(const HostSums&) = delete;
    // Somebody who is lost may write there at any time: the memory is never given to anyone else.
    void orphan() noexcept;

    PlaneType type() const noexcept { return options_.type; }

    // Where gradients lie in their unit's memory.
    struct Place {
        std::uint64_t offset_bytes = 0;
        std::uint64_t numel = 0;
    };
    const Place& place(ParameterId parameter) const { return units_.at(parameter.unit).places.at(parameter.index); }
    std::uint64_t bytes(std::uint32_t unit) const { return units_.at(unit).bytes; }

    std::byte* memory(std::uint32_t unit) const;           // the whole range's; null: its sums are not there
    GradientView sum(ParameterId parameter) const;         // REQUIRES: its unit's are there
    GradientView tile(UnitTile tile) const;                // of the shard. REQUIRES: the same
    std::span<std::byte> whole(std::uint32_t unit) const;  // the range of all shards. REQUIRES: the same
    // What no gradient came to, and the padding, becomes zero. REQUIRES: the same
    void clear_gaps(std::uint32_t unit, const GradientLedger& came);

    // Of the kinds that are in host memory or not there at all.
    bool is_there(std::uint32_t unit) const noexcept;
    // Of GradientMemory::one_unit. hold(): the unit has the memory, if it is of those that share it; no other has.
    void hold(std::uint32_t unit);
    void let_go(std::uint32_t unit) noexcept;

    // Of GradientMemory::two_units. By unit: those that share the two slots.
    const std::vector<bool>& shares() const noexcept { return shares_; }
    bool is_in_slot(std::uint32_t unit) const noexcept { return units_[unit].in_slot; }
    bool take_slot(std::uint32_t unit);   // false: none is free. REQUIRES: it is not there, and shares them
    void leave_slot(std::uint32_t unit);  // REQUIRES: is_in_slot()
    void keep(std::uint32_t unit);        // has memory of its own for good. REQUIRES: as take_slot()

    // Of GradientMemory::nvme. Its sums have no place of their own in host memory.
    bool leaves(std::uint32_t unit) const noexcept { return spilled_ && spilled_->has(unit); }
    bool is_empty(std::uint32_t unit) const noexcept { return leaves(unit) && spilled_->is_empty(unit); }
    bool is_changed(std::uint32_t unit) const noexcept { return leaves(unit) && spilled_->is_changed(unit); }
    // The unit that is to be written before memory is asked for another one's sums.
    std::optional<std::uint32_t> leaves_before(std::uint32_t unit) const noexcept;
    void write(std::uint32_t unit) { spilled_->write(unit); }  // REQUIRES: is_changed()
    // By number of tile, where an update reads gradients from; empty: all are in host memory.
    std::vector<std::optional<store::SpillBlock>> blocks() const;

    // memory(), of all kinds: sums that are not there are read, which blocks. REQUIRES: hold(), and nothing
    // leaves_before().
    std::byte* to_change(std::uint32_t unit);
    const std::byte* to_read(std::uint32_t unit);

    // Nobody adds to its sums any more, or reads them but for an update that has begun.
    void forget(std::uint32_t unit) noexcept;
    void forget_all() noexcept;

   private:
    struct Unit {
        std::byte* memory = nullptr;  // own flat range, then the borrowed ones, each at a granule
        std::uint64_t bytes = 0;
        std::vector<Place> places;  // own, then borrowed, as ParameterId counts
        bool in_slot = false;
    };
    bool has(GradientMemory memory, std::uint32_t unit) const noexcept;  // shares memory of that kind

    void place_parameters();
    void take_memory(pool::PinnedPool& pool);
    std::byte* lease(pool::PinnedPool& pool, std::uint64_t bytes);

    // Constant after construction.
    const ModelLayout* layout_;
    HostSumsOptions options_;
    std::vector<bool> shares_;  // by unit: memory with others
    std::vector<pool::Lease> leases_;
    std::vector<Unit> units_;

    std::optional<std::uint32_t> holder_;  // of one_unit: whose sums the shared memory has
    std::vector<std::byte*> slots_;        // of two_units: those that are free
    MoreMemory more_;                      // of two_units: what is kept beside them
    std::optional<SpilledSums> spilled_;   // of nvme, where any leave
    std::optional<std::uint32_t> opened_;  // of them, the one that was changed last
};

}  // namespace penstock::zero
