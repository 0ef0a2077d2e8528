#include "zero_infinity/gradients/gradient_norm.h"

#include "zero_infinity/optimizer/gradient.h"

#include <algorithm>
#include <cmath>

namespace penstock::zero {

GradientNorm::GradientNorm(const ModelLayout& layout)
    : layout_(&layout),
      squares_(layout.partition().ranks * layout.tiles().size()),
      of_ranks_(squares_.size() + layout.partition().ranks),
      committed_(layout.partition().ranks) {}

// All ranks have as many tiles of a unit as this one.
std::size_t GradientNorm::place_of(UnitTile tile) const {
    const Partition partition = layout_->partition();
    const std::size_t before = layout_->number({tile.unit, 0});  // tiles of one rank
    return partition.ranks * before + std::size_t{partition.rank} * layout_->unit(tile.unit).tile_count() + tile.tile;
}

void GradientNorm::count(std::uint32_t unit, const HostSums& sums, Workers& workers) {
    const bool there = sums.is_there(unit);
    workers.run(layout_->unit(unit).tile_count(), [&](std::size_t index) {
        const UnitTile tile{unit, static_cast<std::uint32_t>(index)};
        squares_[place_of(tile)] = there ? sum_of_squares(sums.tile(tile)) : 0;
    });
}

bool GradientNorm::is_finite(std::uint32_t unit) const {
    const auto first = squares_.begin() + static_cast<std::ptrdiff_t>(place_of({unit, 0}));
    return std::all_of(first, first + layout_->unit(unit).tile_count(),
                       [](double each) { return std::isfinite(each); });
}

// Only one rank's addend of each is not zero, so no bit changes; nor of a generation, as long as it is below 2^53.
double GradientNorm::of_all(Communicator& communicator, CommitBarrier& commits) {
    const auto numbers = std::copy(squares_.begin(), squares_.end(), of_ranks_.begin());
    std::fill(numbers, of_ranks_.end(), 0);
    numbers[layout_->partition().rank] = static_cast<double>(commits.mine());
    communicator.all_reduce(of_ranks_);
    std::transform(numbers, of_ranks_.end(), committed_.begin(),
                   [](double each) { return static_cast<std::uint64_t>(each); });
    commits.heard(committed_);
    double sum = 0;
    for (auto square = of_ranks_.begin(); square != numbers; ++square) sum += *square;
    return std::sqrt(sum);
}

}  // namespace penstock::zero
