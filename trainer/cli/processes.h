// Several processes that a launcher has started for one training. There are no ranks yet: each would train alone.
#pragma once

#include <functional>
#include <string>

namespace penstock::trainer {

// The value of a variable, or null.
using Environment = std::function<const char*(const char*)>;

// What to say where the environment tells of more than one; else empty. Of torchrun and others, Open MPI, MPICH, Slurm;
// an allocation of Slurm's (SLURM_NTASKS) is none: what runs in it may be one process.
std::string complaint_about_processes(const Environment& variable);

}  // namespace penstock::trainer
