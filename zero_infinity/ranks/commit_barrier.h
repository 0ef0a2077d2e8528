// The rule that leaves all ranks a generation that they can go on from together.
#pragma once

#include "zero_infinity/ranks/communicator.h"

namespace penstock::zero {

// The first write of generation g+1 overwrites what is left of g-1, so on every rank it comes after the commit of g on
// all ranks: a rank that is killed in between then finds the others with g, too. A collective that each rank joins only
// after its own commit has returned carries the rule for nothing; where none comes in time there is a barrier.
//
// Example: commit g, norm of the gradient (joined), first write: no barrier. commit g, first write: a barrier between.
// Compute thread only.
class CommitBarrier {
   public:
    explicit CommitBarrier(Communicator& communicator) noexcept : communicator_(&communicator) {}

    void committed() noexcept { passed_ = false; }  // on this rank
    void joined() noexcept { passed_ = true; }      // a collective that waits for all ranks has ended
    // May wait for the other ranks. Throws what Communicator::barrier() throws.
    void before_write() {
        if (passed_) return;
        communicator_->barrier();
        passed_ = true;
    }

   private:
    Communicator* communicator_;
    bool passed_ = false;  // all ranks have committed what this one has; at the start nobody knows
};

}  // namespace penstock::zero
