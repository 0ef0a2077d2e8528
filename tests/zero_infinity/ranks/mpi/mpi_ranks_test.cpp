// Ranks that mpirun has started: what they give each other, and how they end.
#include "tests/seeds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

namespace penstock::testing {
namespace {

struct MpiRun {
    int code = -1;
    std::string said;  // on both streams, of all ranks and of mpirun
    double seconds = 0;

    int count(const std::string& words) const {
        int found = 0;
        for (std::size_t at = said.find(words); at != std::string::npos; at = said.find(words, at + 1)) ++found;
        return found;
    }
};

MpiRun run_command(const std::string& command) {
    const auto begin = std::chrono::steady_clock::now();
    MpiRun run;
    FILE* const pipe = ::popen(("exec 2>&1; timeout -s KILL 60 " + command).c_str(), "r");
    if (pipe == nullptr) return run;
    std::array<char, 4096> text{};
    while (const std::size_t got = std::fread(text.data(), 1, text.size(), pipe)) run.said.append(text.data(), got);
    const int status = ::pclose(pipe);
    run.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return run;
}

// Nobody waits for those that mpirun ends.
MpiRun run_ranks_of_mpi(int ranks, const std::string& deed, std::uint64_t seed = 1) {
    return run_command(
        fmt::format("mpirun --allow-run-as-root --oversubscribe --mca odls_base_sigkill_timeout 0 -n {} {} {} {}",
                    ranks, PENSTOCK_RANK_PROGRAM, deed, seed));
}

class MpiRanksTest : public ::testing::Test {
   protected:
    void SetUp() override {
        if (run_command("mpirun --version").code != 0) GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
    }
};

// Blocks, lanes and ordered sums; two ranks cannot see a wrong order.
TEST_F(MpiRanksTest, MoveWhatTheyGive) {
    const std::uint64_t seed = first_seed();
    SCOPED_TRACE(replay(seed));
    for (const int ranks : {1, 3}) {
        const MpiRun run = run_ranks_of_mpi(ranks, "moves", seed);
        EXPECT_EQ(run.code, 0) << run.said;
        EXPECT_EQ(run.count("is done"), ranks) << run.said;
    }
}

TEST_F(MpiRanksTest, OneThatIsStartedAloneDoesNotTouchMpi) {
    EXPECT_EQ(run_command(
                  "env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE -u PMIX_RANK -u SLURM_STEP_NUM_TASKS " PENSTOCK_RANK_PROGRAM
                  " moves 1")
                  .said,
              "alone, MPI 0\n");
}

// By the rank that has it, and its exit code is the run's.
TEST_F(MpiRanksTest, TheFirstCauseIsToldOnce) {
    const MpiRun run = run_ranks_of_mpi(3, "fails");
    EXPECT_EQ(run.code, 4) << run.said;
    EXPECT_EQ(run.count("told: "), 1) << run.said;
    EXPECT_EQ(run.count("told: the drive is gone"), 1) << run.said;
    EXPECT_LT(run.seconds, 10) << run.said;
}

TEST_F(MpiRanksTest, OneThatIsKilledEndsTheOthers) {
    const MpiRun run = run_ranks_of_mpi(3, "is_killed");
    EXPECT_EQ(run.code, 137) << run.said;
    EXPECT_EQ(run.count("is done"), 0) << run.said;
    EXPECT_LT(run.seconds, 10) << run.said;
}

TEST_F(MpiRanksTest, OneThatLeavesEndsTheOthers) {
    const MpiRun run = run_ranks_of_mpi(3, "leaves");
    EXPECT_EQ(run.code, 3) << run.said;
    EXPECT_EQ(run.count("heard: rank 1 has ended: closed before its end"), 2) << run.said;
    EXPECT_LT(run.seconds, 10) << run.said;
}

TEST_F(MpiRanksTest, OneThatIsSilentIsNamedAtTheDeadline) {
    const MpiRun run = run_ranks_of_mpi(3, "is_silent");
    EXPECT_EQ(run.code, 7) << run.said;
    EXPECT_EQ(run.count("told: "), 1) << run.said;
    EXPECT_EQ(run.count("told: nothing has come from rank 1 for 2 s, in a gather of 8 bytes a rank"), 1) << run.said;
    EXPECT_LT(run.seconds, 10) << run.said;
}

// Long before a call would give it up.
TEST_F(MpiRanksTest, OneWhoseProcessIsStoppedIsNamedByItsSilence) {
    const MpiRun run = run_ranks_of_mpi(3, "is_stopped");
    EXPECT_EQ(run.code, 7) << run.said;
    EXPECT_EQ(run.count("told: rank 1 is silent for 2 s: its process is stopped, or gone"), 1) << run.said;
    EXPECT_EQ(run.count("told: "), 1) << run.said;
    EXPECT_LT(run.seconds, 10) << run.said;
}

TEST_F(MpiRanksTest, OtherCallsAreNamedByTheLane) {
    const MpiRun run = run_ranks_of_mpi(3, "calls_another");
    EXPECT_EQ(run.code, 2) << run.said;
    EXPECT_GE(run.count("ranks 0, 2 with the weights of blocks.1 (8 bytes a rank); rank 1 with the norm"), 1)
        << run.said;
}

// Below the lane. The other rank finds a message that is too long, at the same time.
TEST_F(MpiRanksTest, OtherBytesAreNotTaken) {
    const MpiRun run = run_ranks_of_mpi(2, "gives_less");
    EXPECT_TRUE(run.code == 1 || run.code == 7) << run.said;
    EXPECT_GE(
        run.count("told: rank 1 gives 64 bytes where 128 were to come") + run.count("told: MPI: MPI_ERR_TRUNCATE"), 1)
        << run.said;
}

TEST_F(MpiRanksTest, WhoWaitsLeavesTheProcessorToOthers) {
    const MpiRun run = run_ranks_of_mpi(3, "comes_late");
    EXPECT_EQ(run.code, 0) << run.said;
}

TEST_F(MpiRanksTest, AnMpiOfOneThreadIsRefused) {
    const MpiRun run = run_ranks_of_mpi(1, "has_one_thread");
    EXPECT_EQ(run.code, 2) << run.said;
    EXPECT_EQ(run.count("take an Open MPI with MPI_THREAD_MULTIPLE"), 1) << run.said;
}

TEST_F(MpiRanksTest, ALauncherThatIsNotTheLibrarysIsRefused) {
    const MpiRun run = run_ranks_of_mpi(1, "is_miscounted");
    EXPECT_EQ(run.code, 2) << run.said;
    EXPECT_EQ(run.count("OMPI_COMM_WORLD_SIZE is 2"), 1) << run.said;
}

}  // namespace
}  // namespace penstock::testing
