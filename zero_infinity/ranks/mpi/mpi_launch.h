// Whether a launcher of MPI has started this process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace penstock::zero {

struct MpiLaunch {
    std::string told_by;      // the variable that says it: "OMPI_COMM_WORLD_SIZE"
    std::uint32_t ranks = 0;  // that were started; 0: the launcher does not say
    bool told_mpi = true;     // MPI was told, too, how to find the others
};

// What the environment says of mpirun, or of srun with more than one task; `variable` gives a value or null. Nothing:
// the process was started alone, and has no need of MPI. An allocation of Slurm's (SLURM_NTASKS) is no launch.
std::optional<MpiLaunch> mpi_launch(const std::function<const char*(const char*)>& variable);

}  // namespace penstock::zero
