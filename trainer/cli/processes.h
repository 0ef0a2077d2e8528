// Several processes that a launcher has started which is none of MPI's: they cannot speak, and each would train alone.
#pragma once

#include <functional>
#include <string>

namespace penstock::trainer {

// The value of a variable, or null.
using Environment = std::function<const char*(const char*)>;

// What to say where the environment tells of more than one, as torchrun's does; else empty. Those of MPI's launchers:
// zero_infinity/ranks/mpi/mpi_launch.h.
std::string complaint_about_processes(const Environment& variable);

}  // namespace penstock::trainer
