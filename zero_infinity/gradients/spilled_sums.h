// The gradient sums of two units at a time in host memory, those of the others on NVMe between their uses.
#pragma once

#include "swap/spill/spill.h"
#include "zero_infinity/driver/driver.h"
#include "zero_infinity/layout/model_layout.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// Whose, where, and by whom they are moved. All of it outlives them.
struct SpilledSumsDeps {
    const ModelLayout* layout = nullptr;
    std::vector<std::uint32_t> units;  // whose sums leave
    std::uint64_t element_bytes = 0;
    std::span<std::byte> memory;   // of one slot for each unit that is there at once
    std::uint64_t slot_bytes = 0;  // whole granules, with room for each of the units
    store::Spill* spill = nullptr;
    Driver* driver = nullptr;  // not called before open() or look()
};

// Compute thread only. Each tile has a block of its own, so that an update reads it with the tile's states. What fails
// on the way is thrown as Driver's calls do.
class SpilledSums {
   public:
    // Reserves room on disk: throws Error (does_not_fit, storage).
    explicit SpilledSums(SpilledSumsDeps deps);

    bool has(std::uint32_t unit) const noexcept { return of_.at(unit).has_value(); }  // its sums leave
    // By number of tile; nothing for one whose sums stay.
    std::span<const std::optional<store::SpillBlock>> blocks() const noexcept { return blocks_; }

    // REQUIRES, for all below: has(unit).
    //
    // Where its sums lie in host memory. They are read if they are not there: blocks, also until what gives way is
    // written. open(): they are going to be changed. REQUIRES: what gives way was written since it was changed.
    std::byte* open(std::uint32_t unit);
    const std::byte* look(std::uint32_t unit);
    std::byte* memory(std::uint32_t unit) const noexcept;  // null: not there
    bool is_changed(std::uint32_t unit) const noexcept;    // since it was written
    bool is_empty(std::uint32_t unit) const noexcept;      // it was not opened since clear()
    // Begins to write them; they may be looked at meanwhile. REQUIRES: is_changed().
    void write(std::uint32_t unit);
    // Nobody adds to what there is any more. An update that has begun still reads it.
    void clear(std::uint32_t unit) noexcept;

   private:
    enum class State : std::uint8_t {
        empty,    // there is nothing to keep
        changed,  // in a slot alone
        written,  // in a slot, and on NVMe or on the way there
        out,      // on NVMe alone
    };
    struct Slot {
        std::byte* memory = nullptr;
        std::optional<std::uint32_t> unit;
    };
    struct Unit {
        State state = State::empty;
        std::size_t slot = none;
    };
    static constexpr std::size_t none = ~std::size_t{0};

    Unit& of(std::uint32_t unit);
    std::size_t free_slot();
    void bring(std::uint32_t unit);
    void wait(std::uint32_t unit);
    std::span<std::byte> tile(std::uint32_t unit, std::uint32_t tile) const;
    store::SpillBlock block(std::uint32_t unit, std::uint32_t tile) const;

    SpilledSumsDeps deps_;
    std::vector<std::optional<Unit>> of_;  // by unit
    std::vector<std::optional<store::SpillBlock>> blocks_;
    std::vector<Slot> slots_;
    std::size_t used_last_ = 0;
};

}  // namespace penstock::zero
