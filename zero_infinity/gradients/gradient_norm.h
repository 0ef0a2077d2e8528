// The norm of a step's gradients, of all ranks: the squares of each tile, added in one order.
#pragma once

#include "zero_infinity/gradients/gradient_ledger.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/ranks/commit_barrier.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/threads/workers.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace penstock::zero {

// Compute thread only. The layout outlives it. Allocates nothing after construction. Tiles are those of shards, so that
// each element is in one rank's tile.
class GradientNorm {
   public:
    GradientNorm(const ModelLayout& layout, const GradientLedger& ledger);

    // The squares of this rank's tiles of one unit, until they are counted again. Empty: no gradient came, they are
    // zero.
    using TileSums = std::function<GradientView(UnitTile tile)>;
    void count(std::uint32_t unit, const TileSums& sums, Workers& workers);
    bool is_finite(std::uint32_t unit) const;  // as they were counted

    // Of all units as they were counted, on every rank: added in the order of units, in each of ranks, in each of
    // tiles. With them goes what each rank has committed, and to which parameters a gradient came there.
    double of_all(Communicator& communicator, CommitBarrier& commits, GradientLedger& ledger);

   private:
    std::span<const std::byte> said_by(std::size_t rank) const;

    const ModelLayout* layout_;
    std::vector<double> squares_;           // by number of this rank's tiles
    std::vector<std::byte> own_;            // what is committed, the squares, what came
    std::vector<std::byte> of_all_;         // the same of each rank
    std::vector<std::uint64_t> committed_;  // by rank
};

}  // namespace penstock::zero
