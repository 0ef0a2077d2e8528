#include "zero_infinity/gradients/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

namespace penstock::zero {
namespace {

constexpr std::size_t squares_offset = sizeof(std::uint64_t);  // behind what is committed

template <typename Number>
Number number_at(std::span<const std::byte> bytes, std::size_t offset) {
    Number number;
    std::memcpy(&number, bytes.data() + offset, sizeof number);
    return number;
}

}  // namespace

GradientNorm::GradientNorm(const ModelLayout& layout, const GradientLedger& ledger)
    : layout_(&layout),
      squares_(layout.tiles().size()),
      own_(squares_offset + squares_.size() * sizeof(double) + ledger.came_bytes()),
      of_all_(layout.partition().ranks * own_.size()),
      committed_(layout.partition().ranks) {}

void GradientNorm::count(std::uint32_t unit, const TileSums& sums, Workers& workers) {
    workers.run(layout_->unit(unit).tile_count(), [&](std::size_t index) {
        const UnitTile tile{unit, static_cast<std::uint32_t>(index)};
        squares_[layout_->number(tile)] = sums ? sum_of_squares(sums(tile)) : 0;
    });
}

bool GradientNorm::is_finite(std::uint32_t unit) const {
    const auto first = squares_.begin() + static_cast<std::ptrdiff_t>(layout_->number({unit, 0}));
    return std::all_of(first, first + layout_->unit(unit).tile_count(),
                       [](double each) { return std::isfinite(each); });
}

std::span<const std::byte> GradientNorm::said_by(std::size_t rank) const {
    return std::span(of_all_).subspan(rank * own_.size(), own_.size());
}

// All ranks have as many tiles of a unit as this one.
double GradientNorm::of_all(Communicator& communicator, CommitBarrier& commits, GradientLedger& ledger) {
    const std::uint64_t mine = commits.mine();
    const std::size_t squares_bytes = squares_.size() * sizeof(double);
    std::memcpy(own_.data(), &mine, sizeof mine);
    if (squares_bytes > 0) std::memcpy(own_.data() + squares_offset, squares_.data(), squares_bytes);
    ledger.say_what_came(std::span(own_).subspan(squares_offset + squares_bytes));
    communicator.all_gather("the norm", own_, of_all_);
    for (std::size_t rank = 0; rank < committed_.size(); ++rank) {
        committed_[rank] = number_at<std::uint64_t>(said_by(rank), 0);
        if (rank != communicator.rank()) ledger.hear_what_came(said_by(rank).subspan(squares_offset + squares_bytes));
    }
    commits.heard(committed_);
    double sum = 0;
    for (std::uint32_t unit = 0; unit < layout_->unit_count(); ++unit)
        for (std::size_t rank = 0; rank < committed_.size(); ++rank)
            for (std::uint32_t tile = 0; tile < layout_->unit(unit).tile_count(); ++tile)
                sum +=
                    number_at<double>(said_by(rank), squares_offset + layout_->number({unit, tile}) * sizeof(double));
    return std::sqrt(sum);
}

}  // namespace penstock::zero
