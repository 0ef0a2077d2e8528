// `penstock bench` starts the program beside it.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace penstock::testing {
namespace {

// A copy of the program in a directory of its own, which decides what stands beside it.
class Beside : public ::testing::Test {
   protected:
    Beside() { std::filesystem::copy_file(penstock({})[0], program_); }

    void put_bench_there(const std::string& script) {
        write_file(directory_ / "penstock-bench", "#!/bin/sh\n" + script);
        std::filesystem::permissions(directory_ / "penstock-bench", std::filesystem::perms::owner_all);
    }
    Ended start(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), program_);
        return run_command(directory_.path(), arguments);
    }

    TemporaryDirectory directory_;
    const std::string program_ = std::filesystem::absolute(directory_ / "penstock").string();
};

TEST_F(Beside, BenchGetsItsArgumentsUntouchedAndEndsThisProgramAsItEnds) {
    put_bench_there("for a in \"$@\"; do echo \"[$a]\"; done; echo said >&2; exit 42\n");
    const Ended ended = start({"bench", "io", "--help", "--json", "--dir", "two words", "--", ""});
    EXPECT_EQ(ended.output, "[io]\n[--help]\n[--json]\n[--dir]\n[two words]\n[--]\n[]\n");
    EXPECT_EQ(ended.errors, "said\n");
    EXPECT_EQ(ended.code, 42);
    EXPECT_EQ(start({"bench"}).output, "");
}

TEST_F(Beside, BenchThatIsNotThereIsSaidWithTheRemedy) {
    const Ended ended = start({"bench", "--help"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_EQ(ended.output, "");
    EXPECT_NE(ended.errors.find(directory_.path() + "/penstock-bench"), std::string::npos) << ended.errors;
    EXPECT_NE(ended.errors.find("./run build"), std::string::npos) << ended.errors;
}

TEST(BenchVerbs, AMistypedOneIsNamed) {
    const TemporaryDirectory directory;
    const Ended ended = run(directory.path(), {"bench", "--json", "oi"});
    EXPECT_EQ(ended.code, 2);
    if (ended.errors.find("cannot start") != std::string::npos) GTEST_SKIP() << "penstock-bench is not built";
    EXPECT_NE(ended.errors.find("there is no verb 'oi'; the nearest is 'io'; there are: io, "), std::string::npos)
        << ended.errors;
}

TEST_F(Beside, HelpListsBench) {
    EXPECT_NE(start({"--help"}).output.find("  bench "), std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
