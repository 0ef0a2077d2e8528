// The ranks that mpirun or srun has started, over Open MPI. For programs: the libraries for C and Python link no MPI.
// The linker chooses who joins them (ranks_mpi.cpp), or says that this program cannot (ranks_no_mpi.cpp).
#pragma once

#include "zero_infinity/ranks/mpi/mpi_launch.h"
#include "zero_infinity/ranks/transport.h"
#include "zero_infinity/ranks/watch/peer_beats.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace penstock::zero {

struct RankPlace {
    std::uint32_t rank = 0, ranks = 1;
    std::uint32_t local_rank = 0, local_ranks = 1;  // among those that share this machine's memory
};

// MPI in this process, from its beginning to its end; one a process. One thread makes it, finishes it and destroys it;
// all that uses its transports is gone before.
//
//     const auto ranks = join_mpi(*mpi_launch(std::getenv), std::chrono::minutes(30));
//     train(ranks->bulk(), ranks->control());
//     ranks->finish();
//
// A rank that does not come to finish() ends the others: the first cause is sent to them, and their calls throw it.
// MPI is not finalised then, so the process must exit with a code that is not 0: mpirun names the first that does, ends
// the others, and takes its exit code. A rank that was killed is mpirun's to tell.
class MpiRanks {
   public:
    // Unless it was finished: tells the others so, where no cause was told before. Who need not tell it stays for 3 s,
    // so that the rank which tells is the first to exit.
    virtual ~MpiRanks() = default;

    virtual const RankPlace& place() const noexcept = 0;
    // Two, whose calls overlap. What MPI reads and writes is memory of their own, about 32 MiB at most, which a call
    // that throws leaves to MPI for good: never that of the call.
    virtual Transport& bulk() noexcept = 0;
    virtual Transport& control() noexcept = 0;
    // The other rank that said first why all end: it tells the user, and this one need not. Any thread.
    virtual std::optional<std::uint32_t> ended_by() const = 0;
    // Once the cause was said (abort): whether this rank is the one that tells the user. Waits half a second for a rank
    // before it that has found the same: what all can see is told once.
    virtual bool is_told_here() = 0;
    // This rank is at its end: waits until all are, as long as it takes them, and finalises MPI. Throws Error
    // (peer_lost) where one ends instead. No call comes behind it.
    virtual void finish() = 0;
};

// Every rank joins. `deadline`: the longest that a call waits with nothing coming from a rank whose process runs; by
// `beats` one whose process does not is noticed. Throws Error (usage) where this program is built without MPI, where
// MPI is not for several threads at once, and where it sees another number of ranks than the launcher has started.
std::unique_ptr<MpiRanks> join_mpi(const MpiLaunch& launch, std::chrono::milliseconds deadline,
                                   const BeatTimes& beats = {});

}  // namespace penstock::zero
