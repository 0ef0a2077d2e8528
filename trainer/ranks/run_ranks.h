// The processes that train one model together, as a run sees them: this one alone, or those that mpirun or srun has
// started.
#pragma once

#include "trainer/cli/failure.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"
#include "zero_infinity/session/session_ranks.h"

#include <cstdint>
#include <memory>

namespace penstock::trainer {

// One voice: rank 0 says how the run goes and has its log and summary; why all end is said by the rank that it happened
// to. Compute thread. Outlives whatever speaks by its ways().
class RunRanks {
   public:
    // Null: one process.
    explicit RunRanks(std::unique_ptr<zero::MpiRanks> joined = nullptr) : joined_(std::move(joined)) {}

    zero::Partition place() const noexcept;
    bool several() const noexcept { return place().ranks > 1; }
    bool speaks() const noexcept { return place().rank == 0; }
    // The GPU of this machine that it computes on, where there are `gpus`: its ranks have one each, by turns.
    // REQUIRES: several().
    int gpu(int gpus) const noexcept;
    zero::RankWays ways() const;
    // Before the session has them.
    std::unique_ptr<zero::Communicator> communicator() const;

    // Runs what may fail. The others are told of an exception before it goes on, and before its unwinding ends what
    // they wait in.
    template <typename Call>
    auto telling(const Call& call) {
        try {
            return call();
        } catch (...) {
            failed(current_failure());
            throw;
        }
    }
    // Of an exception that went through telling(): the user hears of it from this rank.
    bool is_told_here();

    // The run is over on this rank, and all that it has to say is said: waits until it is on all.
    void finish();

   private:
    void failed(const Failure& failure) noexcept;

    std::unique_ptr<zero::MpiRanks> joined_;
};

}  // namespace penstock::trainer
