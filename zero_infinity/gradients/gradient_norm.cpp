#include "zero_infinity/gradients/gradient_norm.h"

#include "zero_infinity/optimizer/gradient.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace penstock::zero {

GradientNorm::GradientNorm(const ModelLayout& layout)
    : layout_(&layout),
      own_(layout.tiles().size() + 1),
      of_all_(layout.partition().ranks * own_.size()),
      committed_(layout.partition().ranks) {}

void GradientNorm::count(std::uint32_t unit, const HostSums& sums, Workers& workers) {
    const bool there = sums.is_there(unit);
    workers.run(layout_->unit(unit).tile_count(), [&](std::size_t index) {
        const UnitTile tile{unit, static_cast<std::uint32_t>(index)};
        own_[layout_->number(tile)] = there ? sum_of_squares(sums.tile(tile)) : 0;
    });
}

bool GradientNorm::is_finite(std::uint32_t unit) const {
    const auto first = own_.begin() + static_cast<std::ptrdiff_t>(layout_->number({unit, 0}));
    return std::all_of(first, first + layout_->unit(unit).tile_count(),
                       [](double each) { return std::isfinite(each); });
}

// All ranks have as many tiles of a unit as this one. No bit of a generation is lost, as long as it is below 2^53.
double GradientNorm::of_all(Communicator& communicator, CommitBarrier& commits) {
    own_.back() = static_cast<double>(commits.mine());
    communicator.all_gather("the norm", std::as_bytes(std::span(own_)), std::as_writable_bytes(std::span(of_all_)));
    for (std::size_t rank = 0; rank < committed_.size(); ++rank)
        committed_[rank] = static_cast<std::uint64_t>(of_all_[(rank + 1) * own_.size() - 1]);
    commits.heard(committed_);
    double sum = 0;
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit)
        for (std::size_t rank = 0; rank < committed_.size(); ++rank)
            for (std::uint32_t tile = 0; tile < layout_->unit(unit).tile_count(); ++tile)
                sum += of_all_[rank * own_.size() + layout_->number({unit, tile})];
    return std::sqrt(sum);
}

}  // namespace penstock::zero
