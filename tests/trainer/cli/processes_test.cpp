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
    EXPECT_EQ(complaint({{"WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_SIZE", "01"}, {"PMI_SIZE", "0"}}), "");
}

TEST(Processes, SeveralAreNamedWithHowToTrainEachAlone) {
    for (const char* name : {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"}) {
        const std::string told = complaint({{name, "2"}});
        EXPECT_NE(told.find(std::string(name) + " is 2"), std::string::npos) << told;
        EXPECT_NE(told.find(std::string("env -u ") + name + " penstock train"), std::string::npos) << told;
    }
    const std::string both = complaint({{"WORLD_SIZE", "0012"}, {"PMI_SIZE", "12"}});
    EXPECT_NE(both.find("WORLD_SIZE is 0012, PMI_SIZE is 12"), std::string::npos) << both;
    EXPECT_NE(both.find("env -u WORLD_SIZE -u PMI_SIZE penstock"), std::string::npos) << both;
    EXPECT_NE(complaint({{"WORLD_SIZE", "99999999999999999999999"}}), "");
}

TEST(Processes, AnAllocationOfSlurmsAndWhatIsNoNumberTellOfNothing) {
    EXPECT_EQ(complaint({{"SLURM_NTASKS", "8"}, {"SLURM_NPROCS", "8"}}), "");
    for (const char* value : {"", " ", "two", "2x", "-2", "2.5"}) EXPECT_EQ(complaint({{"WORLD_SIZE", value}}), "");
}

}  // namespace
}  // namespace penstock::trainer
