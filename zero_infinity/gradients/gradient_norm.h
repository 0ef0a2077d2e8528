// The norm of a step's gradients, of all ranks: the squares of each tile, added in one order.
#pragma once

#include "zero_infinity/gradients/host_sums.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/ranks/commit_barrier.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/threads/workers.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::zero {

// Compute thread only. The layout outlives it. Allocates nothing after construction. Tiles are those of shards, so that
// each element is in one rank's tile.
class GradientNorm {
   public:
    explicit GradientNorm(const ModelLayout& layout);

    // The squares of this rank's tiles of one unit, until they are counted again. Where the unit's sums are not there,
    // no gradient came: they are zero.
    void count(std::uint32_t unit, const HostSums& sums, Workers& workers);
    bool is_finite(std::uint32_t unit) const;  // as they were counted

    // Of all units as they were counted, on every rank: added in the order of units, in each of ranks, in each of
    // tiles. With them goes what each rank has committed.
    double of_all(Communicator& communicator, CommitBarrier& commits);

   private:
    const ModelLayout* layout_;
    std::vector<double> own_;               // squares by number of this rank's tiles, then what it has committed
    std::vector<double> of_all_;            // the same of each rank
    std::vector<std::uint64_t> committed_;  // by rank
};

}  // namespace penstock::zero
