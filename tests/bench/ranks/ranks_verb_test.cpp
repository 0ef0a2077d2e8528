// The verb alone, and penstock-bench as mpirun starts it.
#include "bench/harness/verbs.h"
#include "tests/refusal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace penstock::bench {
namespace {

void run(Report& report, const std::string& arguments) {
    CLI::App app("test");
    const BenchRun measure = add_ranks_verb(app);
    app.parse("ranks " + arguments);
    measure(report);
}

TEST(RanksBench, OneRankSaysHowToStartSeveral) {
    Report report("ranks");
    run(report, "--bytes 64KiB --rounds 2");
    const auto json = nlohmann::json::parse(report.json());
    EXPECT_EQ(json["facts"]["ranks"], "1, one rank");
    ASSERT_EQ(report.figures().size(), 1U);
    EXPECT_EQ(report.figures()[0].name, "sum alone");
    EXPECT_EQ(report.figures()[0].rounds.size(), 2U);
    EXPECT_SAYS(report.json(), "mpirun -n 2 penstock-bench ranks");
}

TEST(RanksBench, BytesAreWholeElements) {
    Report report("ranks");
    EXPECT_SAYS(refusal_of(ExitCode::usage, [&] { run(report, "--bytes 6"); }), "expected a multiple of 4");
    EXPECT_SAYS(refusal_of(ExitCode::usage, [&] { run(report, "--bytes 2TiB"); }), "up to 1099511627776");
}

// As this test program is: several of them would each be a rank alone, without a word.
TEST(RanksBench, SeveralAreRefusedByAProgramWithoutMpi) {
    ::setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    Report report("ranks");
    const std::string said = refusal_of(ExitCode::usage, [&] { run(report, "--bytes 64KiB"); });
    ::unsetenv("OMPI_COMM_WORLD_SIZE");
    EXPECT_SAYS(said, "built without MPI");
}

#ifdef PENSTOCK_BENCH_OF_MPI
struct Started {
    int code = -1;
    std::string said;
};

Started started(const std::string& command) {
    Started ended;
    FILE* const pipe = ::popen(("timeout -s KILL 60 " + command).c_str(), "r");
    if (pipe == nullptr) return ended;
    std::array<char, 4096> text{};
    while (const std::size_t got = std::fread(text.data(), 1, text.size(), pipe)) ended.said.append(text.data(), got);
    const int status = ::pclose(pipe);
    if (WIFEXITED(status)) ended.code = WEXITSTATUS(status);
    return ended;
}

class RanksBenchOverMpi : public ::testing::Test {
   protected:
    void SetUp() override {
        if (started("mpirun --version 2>&1").code != 0) GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
    }
    static Started ranks(const std::string& arguments) {
        return started("mpirun --allow-run-as-root --oversubscribe -n 2 " PENSTOCK_BENCH_OF_MPI " ranks " + arguments);
    }
};

TEST_F(RanksBenchOverMpi, RankZeroHasTheResultAndSpeaksAlone) {
    const Started ended = ranks("--json --bytes 256KiB --rounds 2 2>&1");
    EXPECT_EQ(ended.code, 0) << ended.said;
    const auto json = nlohmann::json::parse(ended.said, nullptr, false);
    ASSERT_FALSE(json.is_discarded()) << ended.said;
    EXPECT_EQ(json["facts"]["ranks"].get<std::string>().rfind("2, Open MPI", 0), 0U) << ended.said;
    EXPECT_TRUE(json["facts"].contains("rank 1"));
    ASSERT_EQ(json["figures"].size(), 4U) << ended.said;
    for (const auto& figure : json["figures"]) {
        EXPECT_EQ(figure["rounds"].size(), 2U) << figure;
        EXPECT_GT(figure["low"].get<double>(), 0) << figure;
    }
}

// Also where the launcher ends nobody, as srun: here the shells of the ranks stay, that of rank 1 behind its 3 s.
TEST_F(RanksBenchOverMpi, AnErrorIsToldOnce) {
    const Started ended =
        started("mpirun --allow-run-as-root --oversubscribe -n 2 sh -c '" PENSTOCK_BENCH_OF_MPI
                " ranks --bytes 1TiB; code=$?; sleep $((4 - 2 * OMPI_COMM_WORLD_RANK)); exit $code' 2>&1");
    EXPECT_EQ(ended.code, 3) << ended.said;
    const std::size_t first = ended.said.find("penstock: error: ");
    ASSERT_NE(first, std::string::npos) << ended.said;
    EXPECT_EQ(ended.said.find("penstock: error: ", first + 1), std::string::npos) << ended.said;
}
#endif

}  // namespace
}  // namespace penstock::bench
