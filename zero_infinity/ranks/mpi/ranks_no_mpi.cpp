// The half for programs that are built without MPI.
#include "aio/words/error.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"

#include <fmt/format.h>

std::unique_ptr<penstock::zero::MpiRanks> penstock::zero::join_mpi(const MpiLaunch& launch,
                                                                   std::chrono::milliseconds /*deadline*/,
                                                                   const BeatTimes& /*beats*/) {
    throw Error(
        ExitCode::usage,
        fmt::format("{} says that a launcher has started several ranks, and this program is built without MPI, so "
                    "that each would be alone. Debian's libopenmpi-dev and `./run build` in a checkout of Penstock "
                    "make one with it",
                    launch.told_by));
}
