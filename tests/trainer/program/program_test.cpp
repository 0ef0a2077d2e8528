// The program as a whole: what it prints where, resume, signals. Exactness under kills is in tests/engine.
#include "tests/trainer/program/program.h"
#include "tests/trainer/data/text_files.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

namespace penstock::testing {
namespace {

using nlohmann::json;

class Trained : public ::testing::Test {
   protected:
    Trained() { write_toy(directory_.path()); }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json"});
        return run(directory_.path(), more);
    }

    std::vector<json> log() { return read_json_lines(directory_ / "run/log.jsonl"); }

    TemporaryDirectory directory_;
};

TEST(Program, SaysItsVersionAndHelps) {
    const TemporaryDirectory directory;
    const Ended version = run(directory.path(), {"--version"});
    EXPECT_EQ(version.code, 0);
    EXPECT_TRUE(version.output.starts_with("penstock ")) << version.output;
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"--help"}, {"train", "--help"}, {"prepare", "--help"}, {"keys", "--help"}}) {
        const Ended help = run(directory.path(), arguments);
        EXPECT_EQ(help.code, 0);
        EXPECT_TRUE(arguments.size() == 1 || help.output.find("Example:") != std::string::npos) << help.output;
    }
}

TEST_F(Trained, PrintsOneJsonObjectAndNothingElse) {
    const Ended ended = train({"--json", "--set", "memory.activations=recompute"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1);
    const json result = json::parse(ended.output);
    EXPECT_EQ(result["steps"], 6);
    EXPECT_EQ(result["resumed_from_step"], 0);
    EXPECT_EQ(result["checkpoint"], "swap");
    EXPECT_EQ(result["params"], result["trainable_params"]);
    EXPECT_GT(result["first_loss"], result["final_loss"]);
    EXPECT_LE(result["pool_peak_bytes"], result["pool_budget_bytes"]);
    EXPECT_EQ(result["pool_budget_bytes"], 4 << 20);
    EXPECT_EQ(result["activation_peak_bytes"], 4 * 32 * 32 * 3 * 2) << "4 rows of 32 tokens, 32 wide, 3 times, in bf16";
    EXPECT_NE(ended.errors.find("besides it, 0.0 MiB of activations are kept for backward, of 4 rows"),
              std::string::npos)
        << ended.errors;
    const double traffic = result["nvme_read_bytes"].get<double>() + result["nvme_write_bytes"].get<double>();
    EXPECT_DOUBLE_EQ(result["bytes_per_param_step"], traffic / (6 * result["params"].get<double>()));
    EXPECT_TRUE(result["sample"].get<std::string>().starts_with("the "));
    const auto steps = log();
    ASSERT_EQ(steps.size(), 6U);
    for (int step = 1; step <= 6; ++step) {
        EXPECT_EQ(steps[static_cast<std::size_t>(step - 1)]["step"], step);
        EXPECT_EQ(steps[static_cast<std::size_t>(step - 1)]["committed"], step);
    }
    EXPECT_EQ(steps[0]["loss"], result["first_loss"]);
    EXPECT_EQ(steps[5]["loss"], result["final_loss"]);
}

TEST_F(Trained, PrintsNothingOnStandardOutputWithoutJson) {
    const Ended ended = train();
    EXPECT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(ended.output, "");
    EXPECT_NE(ended.errors.find("step 6/6"), std::string::npos);
    EXPECT_NE(ended.errors.find("bytes per trainable parameter and step"), std::string::npos);
    EXPECT_EQ(ended.errors.find('\r'), std::string::npos) << "no terminal, no redrawn line";
}

// Where nobody sees a redrawn line, long work is told in tenths, as `ckpt` does.
TEST_F(Trained, TellsLongWorkInAFileToo) {
    const Ended fresh = train({"--steps", "3"});
    for (const char* what : {"drawing the initial weights [", "writing a sample ["})
        EXPECT_NE(fresh.errors.find(what), std::string::npos) << what << " in " << fresh.errors;
    const Ended resumed = train();
    EXPECT_NE(resumed.errors.find("verifying what was committed ["), std::string::npos) << resumed.errors;
    const Ended prepared = run(directory_.path(), {"prepare", "--out", "x.tokens", "text.txt"});
    EXPECT_NE(prepared.errors.find("prepare [####################] 100 %"), std::string::npos) << prepared.errors;
}

TEST_F(Trained, SaysThatItIsFinishedAndRepeatsItsSummary) {
    const json first = json::parse(train({"--json"}).output);
    const Ended again = train({"--json"});
    EXPECT_EQ(again.code, 0) << again.errors;
    EXPECT_NE(again.errors.find("finished"), std::string::npos);
    EXPECT_NE(again.errors.find("steps       0 here, 6 before"), std::string::npos) << again.errors;
    const json second = json::parse(again.output);
    EXPECT_EQ(second["resumed_from_step"], 6);
    for (const char* key : {"steps_run", "step_seconds_total", "nvme_read_bytes", "bytes_per_param_step"})
        EXPECT_EQ(second[key], 0) << key;
    for (const char* key :
         {"steps", "committed", "params", "first_loss", "final_loss", "checkpoint", "store", "sample"})
        EXPECT_EQ(second[key], first[key]) << key;
    EXPECT_EQ(json::parse(read_file(directory_ / "run/summary.json")), first) << "of the call that did the steps";
    EXPECT_EQ(log().size(), 6U);
}

TEST_F(Trained, ResumesToTheSameLossesAsAnUninterruptedRun) {
    ASSERT_EQ(train({"--steps", "3"}).code, 0);
    const Ended resumed = train({"--json"});
    ASSERT_EQ(resumed.code, 0) << resumed.errors;
    EXPECT_EQ(json::parse(resumed.output)["resumed_from_step"], 3);
    const auto in_two = log();
    std::filesystem::remove_all(directory_ / "swap");
    std::filesystem::remove_all(directory_ / "run");
    const Ended whole = train({"--json"});
    const auto in_one = log();
    ASSERT_EQ(in_one.size(), 6U);
    ASSERT_EQ(in_two.size(), 6U);
    for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_EQ(in_one[i]["loss"], in_two[i]["loss"]) << i + 1;
        EXPECT_EQ(in_one[i]["grad_norm"], in_two[i]["grad_norm"]) << i + 1;
    }
    EXPECT_EQ(json::parse(whole.output)["first_loss"], json::parse(resumed.output)["first_loss"]);
    EXPECT_EQ(json::parse(whole.output)["sample"], json::parse(resumed.output)["sample"]);
}

TEST_F(Trained, MemorySettingsChangeNoBit) {
    ASSERT_EQ(train().code, 0);
    const auto on_nvme = log();
    const std::vector<std::vector<std::string>> settings = {
        {"--set", "zero_optimization.offload_param.device=cpu", "--set",
         "zero_optimization.offload_optimizer.device=cpu"},
        {"--set", "memory.device=emulated", "--set", "memory.device_budget=16MiB", "--set", "memory.activations=keep"},
        {"--set", "memory.prefetch_depth=0", "--set", "memory.staging_tiles=2", "--set", "run.io_backend=threads"}};
    for (const auto& more : settings) {
        std::filesystem::remove_all(directory_ / "swap");
        std::filesystem::remove_all(directory_ / "run");
        const Ended ended = train(more);
        ASSERT_EQ(ended.code, 0) << ended.errors;
        const auto other = log();
        for (std::size_t i = 0; i < 6; ++i)
            EXPECT_EQ(on_nvme[i]["loss"], other[i]["loss"]) << more[1] << " step " << i + 1;
    }
}

TEST_F(Trained, ThreadsZeroKeepsTheNumberOfTheFirstStart) {
    ASSERT_EQ(train({"--steps", "1", "--set", "run.threads=3"}).code, 0);
    const Ended resumed = train({"--steps", "2", "--set", "run.threads=0"});
    EXPECT_EQ(resumed.code, 0) << resumed.errors;
    EXPECT_NE(resumed.errors.find(", 3 threads"), std::string::npos) << resumed.errors;
    EXPECT_EQ(train({"--steps", "3", "--set", "run.threads=1"}).code, 2);
}

TEST_F(Trained, CutsTheLogBackToTheCommittedStep) {
    ASSERT_EQ(train({"--steps", "3"}).code, 0);
    const std::string kept = read_file(directory_ / "run/log.jsonl");
    write_file(directory_ / "run/log.jsonl", kept + "{\"step\":4,\"loss\":9}\n{\"step\":5,\"lo");
    ASSERT_EQ(train({"--steps", "4"}).code, 0);
    const auto steps = log();
    ASSERT_EQ(steps.size(), 4U);
    EXPECT_NE(steps[3]["loss"], 9);
    EXPECT_TRUE(read_file(directory_ / "run/log.jsonl").starts_with(kept));
}

TEST_F(Trained, KeepsTheLogOfARunWhoseStoreIsGone) {
    ASSERT_EQ(train({"--steps", "2"}).code, 0);
    std::filesystem::remove_all(directory_ / "swap");
    // Perhaps it is only not mounted.
    const Ended refused = train({"--steps", "1"});
    EXPECT_EQ(refused.code, 4);
    EXPECT_NE(refused.errors.find("run/log.jsonl reports step 2 as committed, and there is no store in swap"),
              std::string::npos)
        << refused.errors;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "swap"));
    const Ended ended = train({"--steps", "1", "--go-back"});
    EXPECT_EQ(ended.code, 0) << ended.errors;
    for (const char* part : {"a new run: nothing is committed in swap", "warning: run/log.jsonl was of another run",
                             "warning: run/summary.json was of another run"})
        EXPECT_NE(ended.errors.find(part), std::string::npos) << part << "\n" << ended.errors;
    EXPECT_TRUE(std::filesystem::exists(directory_ / "run/log.1.jsonl"));
    EXPECT_EQ(log().size(), 1U);
    EXPECT_EQ(train({"--steps", "2"}).errors.find("a new run"), std::string::npos);
}

TEST_F(Trained, TwoStoresDoNotShareARunDirectory) {
    ASSERT_EQ(train().code, 0);
    const std::string log_before = read_file(directory_ / "run/log.jsonl");
    const Ended other = train({"--json", "--set", "zero_optimization.offload_param.nvme_path=swap2"});
    EXPECT_EQ(other.code, 2);
    EXPECT_EQ(other.output, "");
    EXPECT_NE(other.errors.find("give this run another run.directory"), std::string::npos) << other.errors;
    EXPECT_FALSE(std::filesystem::exists(directory_ / "swap2")) << "told before anything is made";
    // A copy is another store, a move is not.
    std::filesystem::copy(directory_ / "swap", directory_ / "copy");
    EXPECT_EQ(train({"--set", "zero_optimization.offload_param.nvme_path=copy"}).code, 2);
    EXPECT_EQ(read_file(directory_ / "run/log.jsonl"), log_before);
    std::filesystem::rename(directory_ / "swap", directory_ / "moved");
    const Ended moved = train({"--json", "--steps", "7", "--set", "zero_optimization.offload_param.nvme_path=moved"});
    EXPECT_EQ(moved.code, 0) << moved.errors;
    EXPECT_EQ(log().size(), 7U);
}

// The store of the log is gone, but this one is no new run: its steps do not follow on the other's.
TEST_F(Trained, AResumedRunDoesNotGoOnWithTheLogOfAnother) {
    const std::string second = "zero_optimization.offload_param.nvme_path=swap2";
    ASSERT_EQ(train({"--set", second, "--set", "run.directory=run2"}).code, 0);
    const json own = json::parse(train({"--json", "--set", second, "--set", "run.directory=run2"}).output);
    ASSERT_EQ(train({"--set", "optimizer.params.lr=0.1"}).code, 0);
    std::filesystem::remove_all(directory_ / "swap");
    const Ended ended = train({"--json", "--set", second});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(json::parse(ended.output)["final_loss"], own["final_loss"]);
    EXPECT_EQ(json::parse(ended.output)["store"], own["store"]);
    EXPECT_TRUE(std::filesystem::exists(directory_ / "run/summary.1.json"));
    EXPECT_EQ(log().size(), 0U);
}

// Nothing says whose the directory is but the summary itself.
TEST_F(Trained, ASummaryOfAnotherStoreIsNotRecalled) {
    const std::string second = "zero_optimization.offload_param.nvme_path=swap2";
    const json own = json::parse(train({"--json", "--set", second, "--set", "run.directory=run2"}).output);
    ASSERT_EQ(train().code, 0);
    std::filesystem::remove(directory_ / "run/store.json");
    ASSERT_EQ(train({"--set", second}).code, 0);
    EXPECT_EQ(json::parse(read_file(directory_ / "run/summary.json"))["store"], own["store"]);
}

TEST_F(Trained, TwoAtOnceDoNotShareARunDirectory) {
    Program running(directory_.path(), penstock({"train", "config.json", "--steps", "100000"}));
    ASSERT_TRUE(running.says("step 1/100000"));
    const Ended other = train({"--set", "zero_optimization.offload_param.nvme_path=swap2"});
    EXPECT_EQ(other.code, 4);
    EXPECT_NE(other.errors.find("run.directory run: another process writes its log there"), std::string::npos)
        << other.errors;
    const Ended same = train();
    EXPECT_EQ(same.code, 4);
    EXPECT_NE(same.errors.find("the store is in use by process " + std::to_string(running.pid())), std::string::npos)
        << same.errors;
}

TEST_F(Trained, ALogOfAnOlderProgramIsGoneOnWith) {
    ASSERT_EQ(train({"--steps", "3"}).code, 0);
    std::filesystem::remove(directory_ / "run/store.json");
    ASSERT_EQ(train().code, 0);
    EXPECT_EQ(log().size(), 6U);
}

class Stopped : public Trained, public ::testing::WithParamInterface<int> {};

TEST_P(Stopped, FinishesItsStepEndsWith75AndResumes) {
    Program program(directory_.path(), penstock({"train", "config.json", "--steps", "100000", "--json"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), GetParam());
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, 75) << ended.errors;
    EXPECT_NE(ended.errors.find("run the same command again to go on"), std::string::npos);
    const json result = json::parse(ended.output);
    const auto step = result["steps"].get<std::int64_t>();
    EXPECT_GE(step, 2);
    EXPECT_EQ(static_cast<std::int64_t>(log().size()), step);

    const Ended resumed = train({"--json", "--steps", std::to_string(step + 1)});
    EXPECT_EQ(resumed.code, 0) << resumed.errors;
    EXPECT_EQ(json::parse(resumed.output)["resumed_from_step"], step);
    EXPECT_EQ(json::parse(resumed.output)["first_loss"], result["first_loss"]);
}

INSTANTIATE_TEST_SUITE_P(By, Stopped, ::testing::Values(SIGTERM, SIGINT, SIGHUP));

TEST_F(Trained, AHangUpThatIsIgnoredStaysIgnored) {
    std::vector<std::string> command = penstock({"train", "config.json", "--steps", "100000"});
    command.insert(command.begin(), "/usr/bin/nohup");
    Program program(directory_.path(), command);
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGHUP);
    const auto steps = log().size();
    ASSERT_TRUE(program.says("step " + std::to_string(steps + 3) + "/100000"));
    ::kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait().code, 75);
}

TEST_F(Trained, AStoppedRunWritesNoSampleAndAResumedOneDoes) {
    Program program(directory_.path(), penstock({"train", "config.json", "--json", "--steps", "100000"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    ASSERT_EQ(ended.code, 75) << ended.errors;
    const json stopped = json::parse(ended.output);
    EXPECT_EQ(stopped["sample"], "");
    EXPECT_EQ(json::parse(read_file(directory_ / "run/summary.json")), stopped);
    // It has its steps now, and nothing but the sample is missing.
    const Ended again = train({"--json", "--steps", std::to_string(stopped["steps"].get<int>())});
    EXPECT_TRUE(json::parse(again.output)["sample"].get<std::string>().starts_with("the ")) << again.errors;
}

TEST_F(Trained, TheSummaryIsSavedBeforeTheSample) {
    {
        Program program(directory_.path(), penstock({"train", "config.json", "--set", "run.sample.tokens=1000000"}));
        ASSERT_TRUE(program.says("step 6/6"));
        for (int tries = 0; tries < 2000 && !std::filesystem::exists(directory_ / "run/summary.json"); ++tries)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_EQ(json::parse(read_file(directory_ / "run/summary.json"))["steps_run"], 6);
}

// 75 would have a supervisor begin it anew for ever.
TEST_F(Trained, AStoppedScratchRunEndsByTheSignal) {
    Program program(directory_.path(), penstock({"train", "config.json", "--json", "--steps", "100000", "--set",
                                                 "run.commit_every=scratch"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, 128 + SIGTERM) << ended.errors;
    EXPECT_TRUE(json::parse(ended.output)["committed"].is_null());
    EXPECT_NE(ended.errors.find("there is nothing to go on with"), std::string::npos) << ended.errors;
}

TEST_F(Trained, ARunDirectoryThatVanishesCostsNoResult) {
    Program program(directory_.path(), penstock({"train", "config.json", "--json", "--steps", "100000"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    std::filesystem::remove_all(directory_ / "run");
    ::kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, 4) << ended.errors;
    const std::string step = std::to_string(json::parse(ended.output)["steps"].get<int>());
    EXPECT_NE(ended.errors.find("run/summary.json.tmp"), std::string::npos) << ended.errors;
    EXPECT_NE(ended.errors.find("; step " + step + " is committed in swap"), std::string::npos) << ended.errors;
}

TEST_F(Trained, ASecondSignalEndsAtOnceAndTheRunGoesOnFromItsLastCommit) {
    // The copies' delay makes a step long enough for two signals.
    const std::vector<std::string> slow = {"train", "config.json",
                                           "--set", "memory.device=emulated",
                                           "--set", "memory.device_budget=16MiB",
                                           "--set", "memory.emulated_copy_delay_us=300000"};
    Program program(directory_.path(), penstock(slow));
    ASSERT_TRUE(program.says("step 1/6"));
    ::kill(program.pid(), SIGTERM);
    ASSERT_TRUE(program.says("stopping after this step"));
    ::kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    EXPECT_EQ(ended.code, 128 + SIGTERM) << ended.errors;
    const Ended resumed = train({"--json"});
    EXPECT_EQ(resumed.code, 0) << resumed.errors;
    EXPECT_GE(json::parse(resumed.output)["resumed_from_step"], 1);
}

TEST_F(Trained, CommitsWhereItWasToldAndSettlesAtTheEnd) {
    const Ended ended = train({"--json", "--steps", "5", "--set", "run.commit_every=3"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(json::parse(ended.output)["committed"], 5);
    EXPECT_NE(ended.errors.find("checkpoint  swap (step 5)"), std::string::npos) << ended.errors;
    std::vector<int> committed;
    for (const json& step : log()) committed.push_back(step["committed"]);
    EXPECT_EQ(committed, (std::vector<int>{0, 0, 3, 3, 5}));
    const Ended resumed = train({"--json"});
    EXPECT_EQ(json::parse(resumed.output)["resumed_from_step"], 5);
    EXPECT_EQ(log().size(), 6U);
}

TEST_F(Trained, AKillBetweenCommitsGoesBackToTheLastOne) {
    {
        Program program(directory_.path(),
                        penstock({"train", "config.json", "--steps", "100000", "--set", "run.commit_every=4"}));
        ASSERT_TRUE(program.says("step 6/100000"));
    }
    const Ended resumed = train({"--json", "--steps", "1"});
    ASSERT_EQ(resumed.code, 0) << resumed.errors;  // finished long ago: says where it is
    const auto step = json::parse(resumed.output)["resumed_from_step"].get<std::int64_t>();
    EXPECT_GE(step, 4);
    EXPECT_EQ(step % 4, 0);
    EXPECT_EQ(static_cast<std::int64_t>(log().size()), step);
}

TEST_F(Trained, AStopBetweenCommitsCommitsOutOfTurn) {
    Program program(directory_.path(), penstock({"train", "config.json", "--json", "--steps", "100000", "--set",
                                                 "run.commit_every=100000"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    ASSERT_EQ(ended.code, 75) << ended.errors;
    const json result = json::parse(ended.output);
    EXPECT_EQ(result["committed"], result["steps"]);
    const Ended resumed = train({"--json", "--steps", std::to_string(result["steps"].get<int>() + 1)});
    EXPECT_EQ(json::parse(resumed.output)["resumed_from_step"], result["steps"]);
}

TEST_F(Trained, AScratchRunSaysThatNothingIsKeptAndBeginsAnew) {
    for (int life = 0; life < 2; ++life) {
        const Ended ended = train({"--json", "--set", "run.commit_every=scratch"});
        ASSERT_EQ(ended.code, 0) << ended.errors;
        const json result = json::parse(ended.output);
        EXPECT_EQ(result["resumed_from_step"], 0);
        EXPECT_EQ(result["steps"], 6);
        EXPECT_TRUE(result["committed"].is_null());
        for (const char* part : {"scratch: nothing of this run is kept when it ends",
                                 "scratch: steps 1 to 6 are not kept", "checkpoint  none"})
            EXPECT_NE(ended.errors.find(part), std::string::npos) << part << "\n" << ended.errors;
        EXPECT_TRUE(log().at(5)["committed"].is_null());
    }
    EXPECT_EQ(read_json_lines(directory_ / "run/log.1.jsonl").size(), 6U) << "of the first life";
    const Ended durable = train({"--json"});
    EXPECT_EQ(json::parse(durable.output)["steps_run"], 6) << durable.errors;
}

TEST_F(Trained, AScratchRunOnACheckpointLeavesIt) {
    ASSERT_EQ(train({"--steps", "2"}).code, 0);
    const Ended scratch = train({"--json", "--set", "run.commit_every=scratch"});
    EXPECT_EQ(json::parse(scratch.output)["committed"], 2) << scratch.errors;
    EXPECT_NE(scratch.errors.find("what was committed before it stays"), std::string::npos) << scratch.errors;
    const Ended durable = train({"--json"});
    EXPECT_EQ(json::parse(durable.output)["resumed_from_step"], 2) << durable.errors;
    EXPECT_EQ(log().size(), 6U);
}

}  // namespace
}  // namespace penstock::testing
