#include "zero_infinity/gradients/spilled_sums.h"

#include "aio/words/check.h"
#include "pinned_pool/pinned_pool.h"

#include <utility>

namespace penstock::zero {

SpilledSums::SpilledSums(SpilledSumsDeps deps)
    : deps_(std::move(deps)), of_(deps_.layout->unit_count()), blocks_(deps_.layout->tiles().size()) {
    PENSTOCK_CHECK(deps_.slot_bytes > 0 && deps_.memory.size() % deps_.slot_bytes == 0, "{} bytes for slots of {}",
                   deps_.memory.size(), deps_.slot_bytes);
    // A shard's first tile is no whole granule from the begin of the range that is summed.
    PENSTOCK_CHECK(deps_.layout->partition().ranks == 1, "sums of {} ranks leave before they are one rank's shard",
                   deps_.layout->partition().ranks);
    for (std::uint64_t at = 0; at < deps_.memory.size(); at += deps_.slot_bytes)
        slots_.push_back({.memory = deps_.memory.data() + at});
    for (const std::uint32_t unit : deps_.units) {
        of_[unit].emplace();
        const UnitLayout& layout = deps_.layout->unit(unit);
        for (std::uint32_t tile = 0; tile < layout.tile_count(); ++tile)
            blocks_[deps_.layout->number({unit, tile})] =
                deps_.spill->allocate(layout.tile_numel(tile) * deps_.element_bytes);
    }
}

SpilledSums::Unit& SpilledSums::of(std::uint32_t unit) {
    PENSTOCK_CHECK(has(unit), "the sums of unit {} do not leave", unit);
    return *of_[unit];
}

std::byte* SpilledSums::memory(std::uint32_t unit) const noexcept {
    const std::optional<Unit>& at = of_.at(unit);
    return at && at->slot != none ? slots_[at->slot].memory : nullptr;
}

bool SpilledSums::is_changed(std::uint32_t unit) const noexcept {
    return of_.at(unit)->state == State::changed;
}

bool SpilledSums::is_empty(std::uint32_t unit) const noexcept {
    return of_.at(unit)->state == State::empty;
}

// All tiles but the last are whole granules, and so is a slot.
std::span<std::byte> SpilledSums::tile(std::uint32_t unit, std::uint32_t tile) const {
    const UnitLayout& layout = deps_.layout->unit(unit);
    return {memory(unit) + tile * layout.tile_numel() * deps_.element_bytes,
            pool::whole_granules(layout.tile_numel(tile) * deps_.element_bytes)};
}

store::SpillBlock SpilledSums::block(std::uint32_t unit, std::uint32_t tile) const {
    return *blocks_[deps_.layout->number({unit, tile})];
}

// Until the memory is nobody else's.
void SpilledSums::wait(std::uint32_t unit) {
    for (std::uint32_t tile = 0; tile < deps_.layout->unit(unit).tile_count(); ++tile)
        deps_.driver->wait_for_spill(block(unit, tile));
}

std::size_t SpilledSums::free_slot() {
    const std::size_t index = (used_last_ + 1) % slots_.size();
    Slot& slot = slots_[index];
    if (!slot.unit) return index;
    Unit& leaves = of(*slot.unit);
    PENSTOCK_CHECK(leaves.state != State::changed, "the sums of unit {} give way and were not written", *slot.unit);
    wait(*slot.unit);
    if (leaves.state == State::written) leaves.state = State::out;
    leaves.slot = none;
    slot.unit.reset();
    return index;
}

void SpilledSums::bring(std::uint32_t unit) {
    Unit& at = of(unit);
    if (at.slot == none) {
        at.slot = free_slot();
        slots_[at.slot].unit = unit;
    }
    used_last_ = at.slot;
    if (at.state != State::out) return;
    for (std::uint32_t each = 0; each < deps_.layout->unit(unit).tile_count(); ++each)
        deps_.driver->spill_in(block(unit, each), tile(unit, each), unit);
    wait(unit);
    at.state = State::written;
}

std::byte* SpilledSums::open(std::uint32_t unit) {
    bring(unit);
    Unit& at = of(unit);
    if (std::exchange(at.state, State::changed) != State::changed) wait(unit);
    return memory(unit);
}

const std::byte* SpilledSums::look(std::uint32_t unit) {
    bring(unit);
    return memory(unit);
}

void SpilledSums::write(std::uint32_t unit) {
    Unit& at = of(unit);
    PENSTOCK_CHECK(at.state == State::changed, "the sums of unit {} are written, but have not changed", unit);
    for (std::uint32_t each = 0; each < deps_.layout->unit(unit).tile_count(); ++each)
        deps_.driver->spill_out(block(unit, each), tile(unit, each), unit);
    at.state = State::written;
}

void SpilledSums::clear(std::uint32_t unit) noexcept {
    of_.at(unit)->state = State::empty;
}

}  // namespace penstock::zero
