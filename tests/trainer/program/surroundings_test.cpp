// What is outside of a training: signals once it is done, what decides bits beside it, a working directory that is
// gone, limits of the process.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

namespace penstock::testing {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Surroundings : public ::testing::Test {
   protected:
    Surroundings() { write_toy(directory_.path()); }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json"});
        return run(directory_.path(), more);
    }
    // The program, called by a shell that says something first.
    Ended shell(const std::string& before, const std::string& arguments) {
        return run_command(directory_.path(), {"/bin/sh", "-c", before + "; exec " PENSTOCK_PROGRAM " " + arguments});
    }
    // A run that is done, and at a sample that would take long.
    void until_the_sample(Program& program) {
        ASSERT_TRUE(program.says("step 6/6"));
        for (int tries = 0; tries < 5000 && !fs::exists(directory_ / "run/summary.json"); ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }

    TemporaryDirectory directory_;
};

class AfterTheSummary : public Surroundings, public ::testing::WithParamInterface<int> {};

// It has its steps and its summary: a sample is not waited for, and nothing says that it was killed.
TEST_P(AfterTheSummary, ASignalLeavesAFinishedRunFinished) {
    Program program(directory_.path(),
                    penstock({"train", "config.json", "--json", "--set", "run.sample.tokens=1000000"}));
    until_the_sample(program);
    ::kill(program.pid(), GetParam());
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, 0) << ended.errors;
    const json summary = json::parse(ended.output);
    EXPECT_EQ(summary["steps"], 6);
    EXPECT_EQ(summary["committed"], 6);
    EXPECT_EQ(summary["sample"], "");
    EXPECT_NE(ended.errors.find("checkpoint  swap (step 6)"), std::string::npos) << ended.errors;
    EXPECT_TRUE(json::parse(train({"--json"}).output)["sample"].get<std::string>().starts_with("the "));
}
INSTANTIATE_TEST_SUITE_P(By, AfterTheSummary, ::testing::Values(SIGTERM, SIGINT, SIGHUP));

TEST_F(Surroundings, ASecondSignalAfterTheSummaryEndsAtOnce) {
    Program program(directory_.path(), penstock({"train", "config.json", "--set", "run.sample.tokens=1000000", "--set",
                                                 "memory.device=emulated", "--set", "memory.device_budget=16MiB",
                                                 "--set", "memory.emulated_copy_delay_us=100000"}));
    until_the_sample(program);
    ::kill(program.pid(), SIGTERM);
    ASSERT_TRUE(program.says("another signal ends at once"));
    ::kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait().code, 128 + SIGTERM);
}

// Whenever it comes from the last step on, also while the process takes itself apart.
TEST_F(Surroundings, ASignalAtAnyMomentOfTheEndLeavesAFinishedRunFinished) {
    for (int delay = 0; delay < 8; ++delay) {
        fs::remove_all(directory_ / "swap");
        fs::remove_all(directory_ / "run");
        Program program(directory_.path(),
                        penstock({"train", "config.json", "--json", "--steps", "1", "--set", "run.sample.tokens=0"}));
        ASSERT_TRUE(program.says("loss        "));
        std::this_thread::sleep_for(std::chrono::microseconds(delay * 1000));
        ::kill(program.pid(), delay % 2 == 0 ? SIGTERM : SIGUSR1);
        const Ended ended = program.wait();
        EXPECT_EQ(ended.code, 0) << delay << ": " << ended.errors;
        EXPECT_EQ(json::parse(ended.output)["steps"], 1);
    }
}

TEST_F(Surroundings, WhatDecidesBitsBesideTheRunIsRecordedAndAChangeIsSaid) {
    ASSERT_EQ(train({"--steps", "2"}).code, 0);
    const json stored = json::parse(run(directory_.path(), {"ckpt", "show", "swap", "--json"}).output);
    const std::string all = stored.dump();
    for (const char* key : {"bits.processor", "bits.instructions", "bits.torch", "bits.torch_instructions",
                            "bits.onednn", "bits.mkl", "bits.device", "bits.MKL_CBWR", "bits.ONEDNN_MAX_CPU_ISA"})
        EXPECT_NE(all.find(key), std::string::npos) << key << " in " << all;

    const Ended same = train({"--steps", "3"});
    EXPECT_EQ(same.errors.find("the bits may be others"), std::string::npos) << same.errors;

    const Ended other = shell("export ONEDNN_MAX_CPU_ISA=SSE41 MKL_CBWR=COMPATIBLE ATEN_CPU_CAPABILITY=default",
                              "train config.json --steps 4");
    EXPECT_EQ(other.code, 0) << other.errors;
    for (const std::string words : {"warning: ONEDNN_MAX_CPU_ISA was \"not set\" and is \"SSE41\": ",
                                    "MKL_CBWR was \"not set\" and is \"COMPATIBLE\": ", "torch_instructions was \"",
                                    "the bits may be others than those of the run that was not interrupted"})
        EXPECT_NE(other.errors.find(words), std::string::npos) << words << " in " << other.errors;

    // It is said once: the commits after it are of the new kind.
    const Ended back = train({"--steps", "5"});
    EXPECT_NE(back.errors.find("MKL_CBWR was \"COMPATIBLE\" and is \"not set\""), std::string::npos) << back.errors;
    EXPECT_EQ(train({"--steps", "6"}).errors.find("the bits may be others"), std::string::npos);
}

TEST_F(Surroundings, AWorkingDirectoryThatIsGoneIsSaidBeforeAnythingElse) {
    for (const std::string& arguments :
         {"train " + directory_ / "config.json", std::string("keys"), std::string("--help"),
          std::string("ckpt ls swap"), std::string("plan config.json"), std::string("prepare --out x text.txt"),
          std::string("bench io --dir .")}) {
        const Ended ended = shell("mkdir gone && cd gone && rmdir ../gone", arguments);
        EXPECT_EQ(ended.code, 2) << arguments;
        EXPECT_EQ(ended.errors,
                  "penstock: error: the working directory is gone: change to one that is there (cd), then try again\n")
            << arguments;
    }
}

// Whatever there is room for: no abort, and our words.
TEST_F(Surroundings, ALimitOnMemoryEndsWithWordsAndACode) {
    for (const std::string limit : {"-d", "-v"}) {
        bool refused = false, trained = false;
        for (const int mebibytes : {40, 104, 110, 118, 124, 160, 500, 540, 8000}) {
            fs::remove_all(directory_ / "swap");
            fs::remove_all(directory_ / "run");
            const std::string ulimit = "ulimit " + limit + " " + std::to_string(mebibytes * 1024);
            SCOPED_TRACE(ulimit);
            const Ended ended = shell(ulimit, "train config.json --set run.threads=2 --set run.sample.tokens=0");
            if (ended.code == 127) continue;  // the dynamic linker finds no room for the libraries
            trained = trained || ended.code == 0;
            if (ended.code == 0) continue;
            refused = true;
            EXPECT_TRUE(ended.code == 5 || ended.code == 3) << ended.code << ": " << ended.errors;
            EXPECT_NE(ended.errors.find("penstock: error: "), std::string::npos) << ended.errors;
        }
        EXPECT_TRUE(refused && trained) << limit;
    }
}

}  // namespace
}  // namespace penstock::testing
