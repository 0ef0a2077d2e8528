// The program as several ranks, which mpirun starts: one model, one voice, one end.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Words = std::vector<std::string>;

Words joined(Words all, const Words& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

// mpirun itself is the process: it waits for nobody that it ends.
Words mpirun(const Words& what) {
    return joined(
        {"/usr/bin/env", "mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "odls_base_sigkill_timeout", "0"},
        what);
}
Words of_ranks(int ranks, const Words& arguments) {
    return joined({"-n", std::to_string(ranks)}, penstock(arguments));
}

std::string file_of(pid_t process, const char* name) {
    std::ifstream file(fmt::format("/proc/{}/{}", process, name));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Of mpirun's children the one that is this rank.
pid_t process_of(pid_t mpirun, int rank) {
    const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank) + '\0';
    for (const fs::directory_entry& each : fs::directory_iterator("/proc")) {
        const pid_t process = std::atoi(each.path().filename().c_str());
        if (process <= 0 || file_of(process, "status").find(fmt::format("PPid:\t{}\n", mpirun)) == std::string::npos)
            continue;
        if (file_of(process, "environ").find(wanted) != std::string::npos) return process;
    }
    return -1;
}

std::size_t count(const std::string& text, const std::string& words) {
    std::size_t found = 0;
    for (std::size_t at = text.find(words); at != std::string::npos; at = text.find(words, at + 1)) ++found;
    return found;
}

class RankProgram : public ::testing::Test {
   protected:
    void SetUp() override {
        if (run_command(directory_.path(), mpirun({"--version"})).code != 0)
            GTEST_SKIP() << "mpirun is not there (Debian: openmpi-bin)";
        write_toy(directory_.path());
    }

    Words words(const Words& more) const { return joined({"train", "config.json"}, more); }
    Ended train(int ranks, const Words& more = {}) const {
        return run_command(directory_.path(), mpirun(of_ranks(ranks, words(more))));
    }
    // Ended by a signal to one rank, once a step of that number is there.
    Ended signalled(int step, int rank, int signal, const Words& more) const {
        Program program(directory_.path(), mpirun(of_ranks(2, words(more))));
        EXPECT_TRUE(program.says(fmt::format("penstock: step {}/", step)));
        ::kill(process_of(program.pid(), rank), signal);
        return program.wait();
    }
    std::vector<json> log(const std::string& run = "run") const {
        return read_json_lines(directory_ / (run + "/log.jsonl"));
    }
    // Whether its MPI has told of itself.
    bool uses_mpi(Words command) const {
        command.insert(command.begin(), {"/usr/bin/env", "OMPI_MCA_mpi_show_mca_params=enviro"});
        const Ended ended = run_command(directory_.path(), command);
        EXPECT_EQ(ended.code, 0) << ended.errors;
        return count(ended.errors + ended.output, "mpi_show_mca_params=") > 0;
    }
    std::set<std::string> names_in(const std::string& folder) const {
        std::set<std::string> names;
        for (const auto& entry : fs::directory_iterator(directory_ / folder)) names.insert(entry.path().filename());
        return names;
    }
    void expect_refused(const Ended& ended, int code, const std::string& with) const {
        EXPECT_EQ(ended.code, code) << ended.errors;
        EXPECT_NE(ended.errors.find(with), std::string::npos) << ended.errors;
        EXPECT_EQ(count(ended.errors, "penstock: error:"), 1U) << ended.errors;
    }

    const TemporaryDirectory directory_;
};

// One process with as many micro-batches in all has the same rows in each step. Its sums are made in another order.
TEST_F(RankProgram, TrainOneModelWithTheRowsOfOneProcess) {
    const Words alone = {"--set", "run.directory=alone",
                         "--set", "gradient_accumulation_steps=6",
                         "--set", "zero_optimization.offload_param.nvme_path=alone.swap"};
    EXPECT_FALSE(uses_mpi(penstock(words(joined({"--steps", "3"}, alone)))));
    EXPECT_FALSE(uses_mpi(mpirun(of_ranks(1, words(joined({"--steps", "3"}, alone)))))) << "one of mpirun's";
    const Ended ended = train(3, {"--json", "--steps", "3"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(std::count(ended.output.begin(), ended.output.end(), '\n'), 1);
    const json result = json::parse(ended.output);
    EXPECT_EQ(result["ranks"], 3);
    EXPECT_EQ(result["committed"], 3);
    EXPECT_EQ(result["tokens_per_step"], 3 * 4 * 32);
    EXPECT_TRUE(result["sample"].get<std::string>().starts_with("the "));
    EXPECT_EQ(count(ended.errors, "penstock: step 1/3"), 1U) << ended.errors;
    EXPECT_EQ(count(ended.errors, "checkpoint  swap"), 1U) << ended.errors;

    const auto expected = log("alone");
    const auto steps = log();
    ASSERT_EQ(steps.size(), 3U);
    EXPECT_NEAR(steps[0]["loss"], expected[0]["loss"], 1e-12) << "of the same weights and rows";
    for (std::size_t i = 1; i < 3; ++i) EXPECT_NEAR(steps[i]["loss"], expected[i]["loss"], 2e-3);
    EXPECT_EQ(steps[2]["tokens"], expected[2]["tokens"]);
}

// All micro-batches of a unit are one visit: whether a rank's own sums of all units stay or leave decides no bit.
TEST_F(RankProgram, StagesHaveTheSameBits) {
    for (const int ranks : {2, 3}) {
        std::vector<std::vector<json>> logs;
        for (const char* stage : {"0", "1", "2"}) {
            const std::string run = fmt::format("ranks{}stage{}", ranks, stage);
            const Ended ended =
                train(ranks, {"--steps", "20", "--set", fmt::format("zero_optimization.stage={}", stage), "--set",
                              "gradient_accumulation_steps=2", "--set", "run.directory=" + run, "--set",
                              fmt::format("zero_optimization.offload_param.nvme_path={}.swap", run)});
            ASSERT_EQ(ended.code, 0) << ended.errors;
            logs.push_back(log(run));
            ASSERT_EQ(logs.back().size(), 20U);
            for (std::size_t step = 0; step < 20; ++step)
                for (const char* what : {"loss", "grad_norm"})
                    EXPECT_EQ(logs.back()[step].at(what), logs.front()[step].at(what)) << run << ", " << what;
        }
    }
}

TEST_F(RankProgram, OfAStepOfSlurmsThatToldMpiNothingAreRefused) {
    Words command = penstock(words({"--steps", "1"}));
    command.insert(command.begin(), {"/usr/bin/env", "SLURM_STEP_NUM_TASKS=2"});
    expect_refused(run_command(directory_.path(), command), 2, "start them by srun --mpi=pmix");
    EXPECT_FALSE(fs::exists(directory_ / "run"));
}

TEST_F(RankProgram, AreKilledAndStoppedAndGoOnToTheSameBits) {
    const Words course = {"--steps", "14", "--set", "run.sample.tokens=0"};
    ASSERT_TRUE(uses_mpi(mpirun(of_ranks(2, words(course)))));
    const auto whole = log();
    fs::remove_all(directory_ / "swap");
    fs::remove_all(directory_ / "run");

    const Ended killed = signalled(3, 0, SIGKILL, course);
    EXPECT_EQ(killed.code, 128 + SIGKILL) << killed.errors;
    const int committed = log().back()["committed"];

    const Ended stopped = signalled(committed + 2, 1, SIGTERM, course);
    EXPECT_EQ(stopped.code, 75) << stopped.errors;
    EXPECT_EQ(count(stopped.errors, "stopped by a signal after a committed step"), 1U) << stopped.errors;
    const std::size_t resumed = stopped.errors.find("resumed at step ");
    ASSERT_NE(resumed, std::string::npos) << stopped.errors;
    EXPECT_GE(std::atoi(stopped.errors.c_str() + resumed + 16), committed) << "what was reported is not lost";
    const auto steps = log();
    EXPECT_EQ(steps.back()["committed"], steps.size()) << "on all ranks";
    ASSERT_LT(steps.size(), whole.size());
    for (std::size_t i = 0; i < steps.size(); ++i)
        for (const char* key : {"step", "loss", "grad_norm"})
            EXPECT_EQ(steps[i][key], whole[i][key]) << key << " of step " << i + 1;
}

// Nothing closes a connection: the others notice that its beat is missing, after half a minute.
TEST_F(RankProgram, OneThatIsStoppedEndsAllByItsSilence) {
    const Words course = {"--steps", "4000", "--set", "run.sample.tokens=0"};
    const auto begun = std::chrono::steady_clock::now();
    const Ended stopped = signalled(3, 1, SIGSTOP, course);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(90));
    expect_refused(stopped, 7, "rank 1 is silent for 30 s: its process is stopped, or gone");
    const int committed = log().back()["committed"];
    EXPECT_GE(committed, 2);
    EXPECT_EQ(signalled(committed + 2, 0, SIGTERM, course).code, 75) << "goes on";
}

// A snapshot is one of each rank, of one step; older ones go when all ranks have a newer one.
TEST_F(RankProgram, KeepSnapshotsAndGoBackToThem) {
    const Words kept = {"--set", "run.sample.tokens=0", "--set", "keep.last=2"};
    const Ended ended = train(2, joined({"--steps", "6", "--set", "keep.every=2"}, kept));
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_EQ(count(ended.errors, "penstock: kept swap/kept/step-"), 3U) << ended.errors;
    EXPECT_EQ(names_in("swap/kept"), (std::set<std::string>{"step-4", "step-6"}));
    EXPECT_EQ(names_in("swap/kept/step-4/ranks-2"), (std::set<std::string>{"0", "1"}));
    const Ended listed = run_command(directory_.path(), penstock({"ckpt", "ls", "swap/kept"}));
    for (const char* part : {"step-4/ranks-2/0", "step-4/ranks-2/1", "step-6/ranks-2/1"})
        EXPECT_EQ(count(listed.output, part), 1U) << listed.output;

    const auto whole = log();
    fs::remove_all(directory_ / "swap/kept/step-6/ranks-2/1");
    const Ended back =
        train(2, joined({"--steps", "6", "--set", "keep.every=2", "--resume-from", "4", "--go-back"}, kept));
    ASSERT_EQ(back.code, 0) << back.errors;
    EXPECT_EQ(count(back.errors, "resumed at step 4 of 6"), 1U) << back.errors;
    EXPECT_EQ(count(back.errors, "penstock: kept swap/kept/step-6"), 1U) << "anew, because only one had its part";
    EXPECT_EQ(names_in("swap/kept/step-6/ranks-2"), (std::set<std::string>{"0", "1"}));
    const auto again = log();
    ASSERT_EQ(again.size(), whole.size());
    for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(again.back()[key], whole.back()[key]) << key;

    const Words elsewhere = {"--set", "zero_optimization.offload_param.nvme_path=three",
                             "--set", "run.directory=other",
                             "--set", "keep.folder=swap/kept"};
    expect_refused(train(3, joined({"--resume-from", "4"}, elsewhere)), 2,
                   "swap/kept/step-4 holds what 2 processes committed, and 3 are started");
    fs::rename(directory_ / "swap/kept/step-4/ranks-2/1", directory_ / "aside");
    fs::rename(directory_ / "swap/kept/step-6/ranks-2/1", directory_ / "swap/kept/step-4/ranks-2/1");
    expect_refused(train(2, {"--steps", "6", "--resume-from", "4", "--go-back"}), 2,
                   "the snapshots of ranks 0 and 1 are not of the same step of one run");
}

// SIGUSR1 to any of them.
TEST_F(RankProgram, KeepWhatOneIsAskedFor) {
    const Words course = {"--steps", "12", "--set", "run.sample.tokens=0", "--set", "keep.folder=kept"};
    Program program(directory_.path(), mpirun(of_ranks(2, words(course))));
    ASSERT_TRUE(program.says("penstock: step 2/"));
    ::kill(process_of(program.pid(), 1), SIGUSR1);
    const Ended ended = program.wait();
    ASSERT_EQ(ended.code, 0) << ended.errors;
    ASSERT_EQ(count(ended.errors, "penstock: kept kept/step-"), 1U) << ended.errors;
    const std::string name = *names_in("kept").begin();
    EXPECT_EQ(names_in("kept/" + name + "/ranks-2"), (std::set<std::string>{"0", "1"}));

    fs::remove_all(directory_ / ("kept/" + name + "/ranks-2/1"));
    const Ended lacking = train(2, joined(course, {"--resume-from", name.substr(5), "--go-back"}));
    EXPECT_EQ(lacking.code, 4) << lacking.errors;
    EXPECT_NE(lacking.errors.find("kept/" + name + "/ranks-2/1"), std::string::npos) << lacking.errors;
}

TEST_F(RankProgram, WhatOneOfThemFindsIsToldOnceAndEndsAll) {
    ASSERT_EQ(train(2, {"--steps", "2", "--set", "run.sample.tokens=0"}).code, 0);
    expect_refused(run(directory_.path(), words({})), 2, "swap holds what 2 processes committed, and one is started");
    expect_refused(train(3), 2, "swap holds what 2 processes committed, and 3 are started");
    const std::string data = directory_ / "swap/ranks-2/1/data";
    std::ofstream(data, std::ios::binary | std::ios::in) << std::string(fs::file_size(data), '7');
    expect_refused(train(2), 4, "swap/ranks-2/1");
}

TEST_F(RankProgram, ThatDifferAreNamedAndMakeNothing) {
    std::string other = read_file(directory_ / "config.json");
    write_file(directory_ / "other.json", other.replace(other.find("0.003"), 5, "0.004"));
    Words both = of_ranks(1, {"train", "config.json"});
    both.emplace_back(":");
    both = joined(both, of_ranks(1, {"train", "other.json"}));
    expect_refused(run_command(directory_.path(), mpirun(both)), 2, "the processes do not train the same: rank 1 (");
    EXPECT_FALSE(fs::exists(directory_ / "swap"));
    EXPECT_FALSE(fs::exists(directory_ / "run"));
}

}  // namespace
}  // namespace penstock::testing
