// Who updates which stretch of a shard.
#pragma once

#include "aio/words/check.h"
#include "zero_infinity/optimizer/optimizer.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace penstock::zero {

// One stretch of a unit's shard and who updates it.
struct OptimizerPiece {
    std::uint64_t end = 0;                 // element of the shard behind it; it begins where the piece before it ends
    const Optimizer* optimizer = nullptr;  // null: nobody in this step
    double learning_rate_factor = 1;
    std::optional<double> learning_rate;  // in the place of StepValues' times the factor
    std::uint64_t skipped_steps = 0;      // so many of StepValues::step were made without it
};

// What the schedule says about this step for a piece.
inline StepValues values_of(const OptimizerPiece& piece, const StepValues& step) noexcept {
    return {step.step - piece.skipped_steps,
            piece.learning_rate.value_or(step.learning_rate * piece.learning_rate_factor)};
}

// The pieces of the shard that a tile belongs to, and where in the shard the tile begins.
struct TilePieces {
    std::span<const OptimizerPiece> shard;
    std::uint64_t first = 0;
};

// Calls visit(piece, begin, count) for each stretch of one piece within the tile's elements [first, first + count).
// REQUIRES: the pieces reach that far.
template <typename Visit>
void for_each_piece(const TilePieces& pieces, std::uint64_t first, std::uint64_t count, Visit visit) {
    const std::uint64_t end = first + count;
    const auto at = [&](std::uint64_t element) {
        return std::upper_bound(pieces.shard.begin(), pieces.shard.end(), pieces.first + element,
                                [](std::uint64_t place, const OptimizerPiece& piece) { return place < piece.end; });
    };
    for (auto piece = at(first); first < end; ++piece) {
        PENSTOCK_CHECK(piece != pieces.shard.end(), "no optimizer for element {} of the shard", pieces.first + first);
        const std::uint64_t piece_end = std::min(end, piece->end - pieces.first);
        visit(*piece, first, piece_end - first);
        first = piece_end;
    }
}

}  // namespace penstock::zero
