#include "zero_infinity/gradients/shard_sums.h"

#include "aio/words/check.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/rank_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace penstock::zero {

ShardSums::ShardSums(const ModelLayout& layout, PlaneType type, pool::PinnedPool& pool, Lane& lane)
    : layout_(&layout), type_(type), lane_(&lane), units_(layout.unit_count()) {
    for (std::uint32_t unit = 0; unit < units_.size(); ++unit)
        if (const std::uint64_t bytes = shard_sums_bytes(layout, unit, type); bytes > 0)
            units_[unit].memory = pool.acquire(pool.use(gradients_use), bytes);
}

std::span<std::byte> ShardSums::shard(std::uint32_t unit) const {
    return units_.at(unit).memory.span().first(layout_->unit(unit).shard_numel() * bytes_of(type_));
}

void ShardSums::add(std::uint32_t unit, std::span<const std::byte> addend) {
    Unit& to = units_.at(unit);
    PENSTOCK_CHECK(!to.under_way && to.range.empty(), "the sums of unit {} are added to while they are elsewhere",
                   unit);
    to.under_way = lane_->post_reduce(unit,
                                      {.addend = addend,
                                       .wire = type_,
                                       .of = SumOf::mean,
                                       .start = std::exchange(to.empty, false) ? SumStart::fresh : SumStart::carried,
                                       .type = type_,
                                       .sum = shard(unit)},
                                      Inputs::there);
}

void ShardSums::wait(std::uint32_t unit) {
    if (const auto number = std::exchange(units_.at(unit).under_way, std::nullopt)) lane_->wait(*number);
}

void ShardSums::lay_out(std::uint32_t unit, std::span<std::byte> range) {
    Unit& of = units_.at(unit);
    PENSTOCK_CHECK(!of.under_way && !of.empty, "the sums of unit {} are laid out before they are made", unit);
    of.range = range;
    of.under_way = lane_->post_gather(unit, {shard(unit), range}, Inputs::there);
}

void ShardSums::lay_out_zeros(std::uint32_t unit, std::span<std::byte> range) {
    units_.at(unit).range = range;
    units_[unit].empty = false;
    std::memset(range.data(), 0, range.size());
}

void ShardSums::look(std::uint32_t unit) {
    wait(unit);
    if (!is_laid_out(unit)) return;
    const std::span<std::byte> own = shard(unit);
    std::memcpy(own.data(), units_[unit].range.data() + layout_->unit(unit).shard_first() * bytes_of(type_),
                own.size());
}

void ShardSums::take_back(std::uint32_t unit) {
    look(unit);
    units_[unit].range = {};
}

void ShardSums::clear() noexcept {
    for (Unit& unit : units_) {
        unit.empty = true;
        unit.range = {};
    }
}

void ShardSums::clear(std::uint32_t unit, std::uint64_t first, std::uint64_t numel) {
    wait(unit);
    if (is_laid_out(unit)) {
        std::memset(units_[unit].range.data() + first * bytes_of(type_), 0, numel * bytes_of(type_));
        return;
    }
    const UnitLayout& of = layout_->unit(unit);
    const std::uint64_t from = std::max(first, of.shard_first());
    const std::uint64_t until = std::min(first + numel, of.shard_first() + of.shard_numel());
    if (from < until)
        std::memset(units_[unit].memory.data() + (from - of.shard_first()) * bytes_of(type_), 0,
                    (until - from) * bytes_of(type_));
}

GradientView ShardSums::view(std::uint32_t unit, std::uint64_t first, std::uint64_t numel) const {
    PENSTOCK_CHECK(!units_.at(unit).under_way, "the sums of unit {} are looked at while they are made", unit);
    return {units_[unit].memory.data() + first * bytes_of(type_), type_, numel};
}

GradientView ShardSums::tile(UnitTile tile) const {
    const UnitLayout& of = layout_->unit(tile.unit);
    return view(tile.unit, tile.tile * of.tile_numel(), of.tile_numel(tile.tile));
}

GradientView ShardSums::part(ParameterId parameter) const {
    const UnitLayout& of = layout_->unit(parameter.unit);
    const ParameterPlace& place = of.place(parameter.index);
    const std::uint64_t from = std::max(place.first, of.shard_first());
    const std::uint64_t until = std::min(place.first + place.numel, of.shard_first() + of.shard_numel());
    return from < until ? view(parameter.unit, from - of.shard_first(), until - from) : GradientView{};
}

}  // namespace penstock::zero
