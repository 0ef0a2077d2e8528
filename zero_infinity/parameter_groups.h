// Which optimizer updates which parameter: parameter groups as in torch.optim, chosen by name.
#pragma once

#include "aio/check.h"
#include "zero_infinity/optimizer.h"
#include "zero_infinity/unit.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock {

// Parameters with options of their own. `pattern` is a shell glob (fnmatch: *, ?, [a-z]) on "UNIT.PARAMETER", the whole
// of it: "blocks.*.norm*" or "*.bias"; a * goes over dots.
struct ParameterGroup {
    std::string pattern;
    std::shared_ptr<const Optimizer> optimizer;
    double learning_rate_factor = 1;  // the group's rate is StepValues::learning_rate times this, in double
};

// A value that only its owner changes; any thread may read it. The first pattern that matches wins; what none matches
// is updated by `others`. All groups keep the same number of moments: they are planes of one format.
class ParameterGroups {
   public:
    // Every parameter by one optimizer. Implicit: one optimizer is the simplest of groups.
    ParameterGroups(std::unique_ptr<Optimizer> all);
    // Throws Error (usage) when the groups keep different numbers of moments, or a rate's factor is negative or not
    // finite. REQUIRES: no optimizer is null.
    ParameterGroups(std::shared_ptr<const Optimizer> others, std::vector<ParameterGroup> groups);

    const Optimizer& others() const noexcept { return *groups_.back().optimizer; }
    std::uint32_t moments() const noexcept { return others().moments(); }
    const ParameterGroup& group_of(const std::string& unit, const std::string& parameter) const;

    // Throws Error (usage) naming the first pattern that is without effect: no trainable parameter has it as its first
    // match.
    void check_use(std::span<const UnitLayout> units) const;

   private:
    std::size_t index_of(const std::string& unit, const std::string& parameter) const;
    std::vector<ParameterGroup> groups_;  // others last, whose pattern is "*"
};

// One stretch of a unit's shard and who updates it.
struct OptimizerPiece {
    std::uint64_t end = 0;  // element of the shard behind it; it begins where the piece before it ends
    const Optimizer* optimizer = nullptr;
    double learning_rate_factor = 1;
};

// All of a unit's shard, in order; neighbours of one group are one piece. Padding goes with the parameter before it.
// Example: a norm of 768 in one group and a matrix of 100 × 100 in another: ends at 768 and 10816.
// The optimizers stay the groups'.
std::vector<OptimizerPiece> optimizer_pieces(const UnitLayout& unit, const ParameterGroups& groups);

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

}  // namespace penstock
