// The rule that leaves all ranks a generation that they can go on from together.
#pragma once

#include "zero_infinity/ranks/communicator.h"

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// The first write of generation g+1 overwrites what is left of g-1, so on every rank it comes after the commit of g on
// all ranks: a rank that is killed in between then finds the others with g, too (ranks/set_recovery.h). The rule is
// obeyed by numbers that all ranks have exchanged, never by how far one of them is: each gets the same answer at the
// same call. They go with small collectives that are made anyway; where none came in time, with one gather more.
//
// Example: commit 6, norm (all say 6), write 7: no gather. Commit 6, write 7: a gather between. Norm (rank 1 says 5, it
// still commits), commit 6, write 7: a gather, which rank 1 joins once it has committed 6.
// Compute thread only.
class CommitBarrier {
   public:
    explicit CommitBarrier(Communicator& communicator) : communicator_(&communicator), of_all_(communicator.ranks()) {}

    // On this rank: first what its store is opened at, when all that is newer is erased; then each commit.
    void committed(std::uint64_t generation) noexcept { mine_ = generation; }
    // What this rank says in a collective, and what came with it of all ranks. REQUIRES: one number per rank.
    std::uint64_t mine() const noexcept { return mine_; }
    void heard(std::span<const std::uint64_t> of_all);

    // Whether all ranks have committed what comes before `next`, and all of them know.
    bool may_write(std::uint64_t next) const noexcept { return least_ && *least_ + 1 >= next; }
    // Makes a gather where they may not, which waits for the other ranks' commits. Throws what it throws, and Error
    // (usage) where another rank is at another step. REQUIRES: this rank has committed what comes before `next`.
    void before_write(std::uint64_t next);

   private:
    Communicator* communicator_;
    std::uint64_t mine_ = 0;
    std::optional<std::uint64_t> least_;  // of what all ranks have said; none: nobody knows what the others have
    std::vector<std::uint64_t> of_all_;   // for the gather
};

}  // namespace penstock::zero
