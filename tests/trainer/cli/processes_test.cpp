#include "trainer/cli/processes.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace penstock::trainer {
namespace {

std::string complaint(const std::map<std::string, std::string>& variables) {
    return complaint_about_processes([&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

TEST(Processes, OneIsNoneToSpeakOf) {
    EXPECT_EQ(complaint({}), "");
    for (const char* value : {"1", "01", "0"}) EXPECT_EQ(complaint({{"WORLD_SIZE", value}}), "");
}

TEST(Processes, SeveralOfNoMpiAreNamedWithWhatStartsOneTraining) {
    const std::string told = complaint({{"WORLD_SIZE", "2"}});
    EXPECT_NE(told.find("WORLD_SIZE is 2"), std::string::npos) << told;
    EXPECT_NE(told.find("mpirun, srun --mpi=pmix or `penstock launch train`"), std::string::npos) << told;
    EXPECT_NE(told.find("env -u WORLD_SIZE penstock train"), std::string::npos) << told;
    for (const char* value : {"0012", "99999999999999999999999"}) EXPECT_NE(complaint({{"WORLD_SIZE", value}}), "");
}

TEST(Processes, AnAllocationOfSlurmsAndWhatIsNoNumberTellOfNothing) {
    EXPECT_EQ(complaint({{"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"}, {"OMPI_COMM_WORLD_SIZE", "2"}}), "");
    for (const char* value : {"", " ", "two", "2x", "-2", "2.5"}) EXPECT_EQ(complaint({{"WORLD_SIZE", value}}), "");
}

}  // namespace
}  // namespace penstock::trainer
