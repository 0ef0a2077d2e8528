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

void ShardSums::add(std::uint32_t unit, std::span<const std::byte> whole) {
    Unit& to = units_.at(unit);
    PENSTOCK_CHECK(!to.under_way, "the sums of unit {} are added to while they are made", unit);
    const std::uint64_t bytes = layout_->unit(unit).shard_numel() * bytes_of(type_);
    to.under_way = lane_->post_reduce(unit,
                                      {.addend = whole,
                                       .wire = type_,
                                       .start = std::exchange(to.empty, false) ? SumStart::fresh : SumStart::carried,
                                       .type = type_,
                                       .sum = to.memory.span().first(bytes)},
                                      Inputs::there);
}

void ShardSums::wait(std::uint32_t unit) {
    if (const auto number = std::exchange(units_.at(unit).under_way, std::nullopt)) lane_->wait(*number);
}

void ShardSums::clear() noexcept {
    for (Unit& unit : units_) unit.empty = true;
}

void ShardSums::clear(std::uint32_t unit, std::uint64_t first, std::uint64_t numel) {
    wait(unit);
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
