#include "zero_infinity/gradients/host_sums.h"

#include "aio/words/check.h"
#include "zero_infinity/plan/gradient_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::zero {

HostSums::HostSums(const ModelLayout& layout, const HostSumsOptions& options, pool::PinnedPool& pool)
    : layout_(&layout),
      options_(options),
      shares_(shares_gradients(layout, options.type, options.memory)),
      units_(layout.unit_count()),
      more_(options.more) {
    place_parameters();
    take_memory(pool);
}

bool HostSums::has(GradientMemory memory, std::uint32_t unit) const noexcept {
    return options_.memory == memory && shares_[unit];
}

void HostSums::place_parameters() {
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        const UnitLayout& unit = layout_->unit(index);
        Unit& sums = units_[index];
        for (std::size_t own = 0; own < unit.spec().parameters.size(); ++own)
            sums.places.push_back({unit.place(own).first * bytes_of(type()), unit.place(own).numel});
        std::uint64_t offset_bytes = own_gradient_bytes(unit, type());
        for (const BorrowedSpec& borrowed : unit.spec().borrowed) {
            const ParameterSpec& spec = layout_->unit(borrowed.owner).spec().parameters.at(borrowed.parameter);
            sums.places.push_back({offset_bytes, spec.numel()});
            if (spec.training == Training::trainable)
                offset_bytes += pool::whole_granules(spec.numel() * bytes_of(type()));
        }
        sums.bytes = unit_gradient_bytes(*layout_, index, type());
    }
}

std::byte* HostSums::lease(pool::PinnedPool& pool, std::uint64_t bytes) {
    leases_.push_back(pool.acquire(pool.use(gradients_use), bytes));
    std::memset(leases_.back().data(), 0, bytes);  // padding between parameters stays zero
    return leases_.back().data();
}

void HostSums::take_memory(pool::PinnedPool& pool) {
    std::uint64_t largest = 0;
    std::vector<std::uint32_t> sharing;
    for (std::uint32_t index = 0; index < units_.size(); ++index) {
        Unit& unit = units_[index];
        if (unit.bytes == 0) continue;
        if (!shares_[index]) {
            unit.memory = lease(pool, unit.bytes);
            continue;
        }
        sharing.push_back(index);
        largest = std::max(largest, unit.bytes);
    }
    if (sharing.empty()) return;
    const std::uint64_t bytes = largest * std::min<std::uint64_t>(sharing.size(), gradients_at_once(options_.memory));
    std::byte* memory = lease(pool, bytes);
    if (options_.memory == GradientMemory::two_units) {
        for (std::uint64_t at = 0; at < bytes; at += largest) slots_.push_back(memory + at);
        return;
    }
    if (options_.memory == GradientMemory::nvme) {
        spilled_.emplace(SpilledSumsDeps{.layout = layout_,
                                         .units = std::move(sharing),
                                         .element_bytes = bytes_of(type()),
                                         .memory = {memory, bytes},
                                         .slot_bytes = largest,
                                         .spill = options_.spill,
                                         .driver = options_.driver});
        return;
    }
    for (const std::uint32_t unit : sharing) units_[unit].memory = memory;
}

void HostSums::orphan() noexcept {
    for (pool::Lease& lease : leases_) lease.orphan();
    more_.orphan();
}

// ---------------------------------------------------------------- what lies there

std::byte* HostSums::memory(std::uint32_t unit) const {
    return leaves(unit) ? spilled_->memory(unit) : units_[unit].memory;
}

GradientView HostSums::sum(ParameterId parameter) const {
    const Place& at = place(parameter);
    return {memory(parameter.unit) + at.offset_bytes, type(), at.numel};
}

GradientView HostSums::tile(UnitTile tile) const {
    const UnitLayout& unit = layout_->unit(tile.unit);
    const std::byte* whole = memory(tile.unit);
    PENSTOCK_CHECK(whole != nullptr, "gradients of unit {}, which are not in host memory", tile.unit);
    const std::uint64_t first = unit.shard_first() + tile.tile * unit.tile_numel();  // element of the whole range
    return {whole + first * bytes_of(type()), type(), unit.tile_numel(tile.tile)};
}

std::span<std::byte> HostSums::whole(std::uint32_t unit) const {
    return {memory(unit), layout_->unit(unit).trainable_numel() * bytes_of(type())};
}

// A device leaves anything in between.
void HostSums::clear_gaps(std::uint32_t unit, const GradientLedger& came) {
    if (units_[unit].bytes == 0) return;
    std::byte* whole = memory(unit);
    const std::uint64_t whole_bytes = layout_->unit(unit).trainable_numel() * bytes_of(type());
    std::uint64_t end = 0;  // of what is right
    const auto parameters = static_cast<std::uint32_t>(layout_->unit(unit).spec().parameters.size());
    for (std::uint32_t index = 0; index < parameters; ++index) {
        if (!came.is_trainable({unit, index}) || !came.is_here({unit, index})) continue;
        const Place& at = place({unit, index});
        std::memset(whole + end, 0, at.offset_bytes - end);
        end = at.offset_bytes + at.numel * bytes_of(type());
    }
    std::memset(whole + end, 0, whole_bytes - end);
}

// ---------------------------------------------------------------- memory that units share

bool HostSums::is_there(std::uint32_t unit) const noexcept {
    if (has(GradientMemory::one_unit, unit)) return holder_ == unit;
    return units_[unit].memory != nullptr || !has(GradientMemory::two_units, unit);
}

// The sums that were there have been updated with.
void HostSums::hold(std::uint32_t unit) {
    if (!has(GradientMemory::one_unit, unit)) return;
    PENSTOCK_CHECK(is_there(unit) || !holder_,
                   "gradients of unit {} while memory, which is that of one unit, has those of unit {}, which is not "
                   "updated yet",
                   unit, *holder_);
    holder_ = unit;
}

void HostSums::let_go(std::uint32_t unit) noexcept {
    if (holder_ == unit) holder_.reset();
}

bool HostSums::take_slot(std::uint32_t unit) {
    if (slots_.empty()) return false;
    units_[unit].memory = slots_.back();
    units_[unit].in_slot = true;
    slots_.pop_back();
    return true;
}

void HostSums::leave_slot(std::uint32_t unit) {
    slots_.push_back(std::exchange(units_[unit].memory, nullptr));
    units_[unit].in_slot = false;
}

void HostSums::keep(std::uint32_t unit) {
    units_[unit].memory = more_.take(units_[unit].bytes, layout_->unit(unit).spec().name);
}

// ---------------------------------------------------------------- sums that leave

std::optional<std::uint32_t> HostSums::leaves_before(std::uint32_t unit) const noexcept {
    if (!leaves(unit) || !opened_ || *opened_ == unit || !is_changed(*opened_)) return std::nullopt;
    return opened_;
}

std::vector<std::optional<store::SpillBlock>> HostSums::blocks() const {
    if (!spilled_) return {};
    return {spilled_->blocks().begin(), spilled_->blocks().end()};
}

std::byte* HostSums::to_change(std::uint32_t unit) {
    if (!leaves(unit)) return units_[unit].memory;
    opened_ = unit;
    return spilled_->open(unit);
}

const std::byte* HostSums::to_read(std::uint32_t unit) {
    return leaves(unit) ? spilled_->look(unit) : units_[unit].memory;
}

void HostSums::forget(std::uint32_t unit) noexcept {
    if (leaves(unit)) spilled_->clear(unit);
}

void HostSums::forget_all() noexcept {
    holder_.reset();
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit) forget(unit);
}

}  // namespace penstock::zero
