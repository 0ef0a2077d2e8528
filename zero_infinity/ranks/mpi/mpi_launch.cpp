#include "zero_infinity/ranks/mpi/mpi_launch.h"

#include <charconv>
#include <string_view>

namespace penstock::zero {
namespace {

// 0 where the text is no number of processes.
std::uint32_t count_of(const char* text) {
    if (text == nullptr) return 0;
    const std::string_view digits = text;
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    return error == std::errc() && end == digits.data() + digits.size() ? count : 0;
}

}  // namespace

std::optional<MpiLaunch> mpi_launch(const std::function<const char*(const char*)>& variable) {
    // Open MPI's mpirun, one process too; srun --mpi=pmi2 and other MPIs' mpiexec.
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
        if (const std::uint32_t ranks = count_of(variable(name)); ranks > 0) return MpiLaunch{name, ranks};
    // srun --mpi=pmix. A step of Slurm's with several tasks and without PMI was meant as ranks: MPI will not see them.
    constexpr const char* tasks_of_slurm = "SLURM_STEP_NUM_TASKS";
    const std::uint32_t tasks = count_of(variable(tasks_of_slurm));
    if (variable("PMIX_RANK") != nullptr) return MpiLaunch{"PMIX_RANK", tasks};
    if (tasks > 1) return MpiLaunch{tasks_of_slurm, tasks, false};
    return std::nullopt;
}

}  // namespace penstock::zero
