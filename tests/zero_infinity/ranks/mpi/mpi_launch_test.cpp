#include "zero_infinity/ranks/mpi/mpi_launch.h"

#include "tests/refusal.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace penstock::testing {
namespace {

// "by ranks", or "alone".
std::string launched(const std::map<std::string, std::string>& environment) {
    const auto found = zero::mpi_launch([&](const char* name) {
        const auto variable = environment.find(name);
        return variable == environment.end() ? nullptr : variable->second.c_str();
    });
    return found ? found->told_by + " " + std::to_string(found->ranks) : "alone";
}

TEST(MpiLaunch, IsSaidByTheEnvironment) {
    EXPECT_EQ(launched({{"OMPI_COMM_WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}}), "OMPI_COMM_WORLD_SIZE 2");
    EXPECT_EQ(launched({{"OMPI_COMM_WORLD_SIZE", "1"}}), "OMPI_COMM_WORLD_SIZE 1");
    EXPECT_EQ(launched({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}}), "PMI_SIZE 4");
    EXPECT_EQ(launched({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}), "PMIX_RANK 8");
    EXPECT_EQ(launched({{"PMIX_RANK", "0"}}), "PMIX_RANK 0");
    EXPECT_EQ(launched({{"SLURM_STEP_NUM_TASKS", "3"}}), "SLURM_STEP_NUM_TASKS 3") << "and MPI will see one";
}

TEST(MpiLaunch, IsNoneWhereOneProcessWasStarted) {
    EXPECT_EQ(launched({}), "alone");
    EXPECT_EQ(launched({{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}}), "alone") << "a batch script, or a shell there";
    EXPECT_EQ(launched({{"SLURM_STEP_NUM_TASKS", "1"}}), "alone");
    EXPECT_EQ(launched({{"WORLD_SIZE", "2"}, {"RANK", "1"}}), "alone") << "torchrun's have no MPI";
    for (const char* const text : {"", "0", "-2", "two", "2x", "99999999999"})
        EXPECT_EQ(launched({{"OMPI_COMM_WORLD_SIZE", text}}), "alone") << text;
}

TEST(MpiLaunch, IsRefusedByAProgramWithoutMpi) {
    const std::string said = refusal_of(ExitCode::usage, [] {
        zero::join_mpi({"OMPI_COMM_WORLD_SIZE", 2}, std::chrono::seconds(1));
    });
    EXPECT_SAYS(said, "OMPI_COMM_WORLD_SIZE says that a launcher has started");
    EXPECT_SAYS(said, "libopenmpi-dev");
}

}  // namespace
}  // namespace penstock::testing
