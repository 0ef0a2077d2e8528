#include "zero_infinity/forecast/gradient_replay.h"

#include <utility>

namespace penstock::zero {

GradientReplay::GradientReplay(const ModelLayout& layout, std::span<const std::uint64_t> bytes, VirtualDevice& device,
                               std::uint64_t first_number, Wait wait)
    : layout_(layout), bytes_(bytes), device_(device), first_number_(first_number), wait_(std::move(wait)) {}

double GradientReplay::bytes(UnitTile tile) const {
    const UnitLayout& unit = layout_.unit(tile.unit);
    return static_cast<double>(bytes(tile.unit)) * static_cast<double>(unit.tile_numel(tile.tile)) /
           static_cast<double>(unit.shard_numel());
}

void GradientReplay::bring(std::uint32_t unit, bool read) {
    const bool there = std::erase(summed_, unit) > 0;
    summed_.push_back(unit);
    if (there) return;
    if (summed_.size() > 2) summed_.pop_front();
    wait_([&] { return leaving_.size() < 2; });
    if (!read) return;
    returning_ = unit;
    device_.raise(begin(Direction::read, unit));
    wait_([&] { return !returning_; });
}

void GradientReplay::write(std::uint32_t unit) {
    leaving_.push_back(unit);
    begin(Direction::write, unit);
}

void GradientReplay::ended(const VirtualTransfer& transfer) {
    if (transfer.direction == Direction::write) return leaving_.pop_front();
    returning_.reset();
}

std::uint64_t GradientReplay::begin(Direction direction, std::uint32_t unit) {
    device_.begin({direction, first_number_ + unit, static_cast<double>(bytes(unit))});
    return first_number_ + unit;
}

}  // namespace penstock::zero
