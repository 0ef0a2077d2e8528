// The verb as it is: it trains with the program that lies beside this one.
#include "aio/words/error.h"
#include "bench/harness/verbs.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace penstock::bench {
namespace {

void run(std::vector<std::string> arguments, Report& report) {
    CLI::App app("test");
    const BenchRun measure = add_step_verb(app);
    std::reverse(arguments.begin(), arguments.end());
    arguments.emplace_back("step");
    app.parse(arguments);
    measure(report);
}

std::string refusal(const std::vector<std::string>& arguments) {
    Report report("step");
    try {
        run(arguments, report);
    } catch (const CLI::ParseError& error) {
        return error.what();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
        return error.what();
    }
    return "accepted";
}

// As small as the parts allow; what `more` says counts.
std::vector<std::string> small(const TemporaryDirectory& directory, const std::vector<std::string>& more) {
    std::vector<std::string> all = {"--dir", directory.path(), "--set", "run.threads=1"};
    for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{{"--layers", "2"},
                                                                                        {"--hidden", "64"},
                                                                                        {"--tokens", "16"},
                                                                                        {"--steps", "2"},
                                                                                        {"--warm-up", "0"},
                                                                                        {"--rounds", "2"},
                                                                                        {"--budget", "64MiB"},
                                                                                        {"--seconds", "0.05"}})
        if (std::find(more.begin(), more.end(), option) == more.end()) all.insert(all.end(), {option, value});
    all.insert(all.end(), more.begin(), more.end());
    return all;
}

class StepBench : public ::testing::Test {
   protected:
    void SetUp() override {
#ifndef PENSTOCK_HAS_PROGRAM
        GTEST_SKIP() << "the program is not part of this build";
#endif
    }
};

TEST_F(StepBench, EveryOrderTakesItsTurnsOnOneStoreAndLeavesNothing) {
    const TemporaryDirectory directory;
    Report report("step");
    run(small(directory, {"--rounds", "1"}), report);
    for (const char* order : {"after_backward", "deferred", "within"}) {
        const Figure* step = report.find(std::string(order) + ": step");
        ASSERT_NE(step, nullptr) << order;
        EXPECT_EQ(step->rounds.size(), 1U);
        EXPECT_GT(report.find(std::string(order) + ": NVMe")->low(), 10);
        EXPECT_GT(report.find(std::string(order) + ": ideal ÷ step, phase by phase")->low(), 0);
    }
    EXPECT_EQ(report.find("within: steps updated again"), nullptr);
    EXPECT_GT(report.find("all in host memory: step")->low(), 0);
    ASSERT_NE(report.find("device: writes made durable"), nullptr);
    EXPECT_GT(report.find("device: writes made durable")->low(), 0);
    EXPECT_GE(report.find("deferred: ideal, made durable ÷ step")->low(),
              report.find("deferred: ideal ÷ step, all at once")->low());
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST_F(StepBench, NothingOfAConfigurationsOwnRunIsTouched) {
    const TemporaryDirectory directory;
    const TemporaryDirectory own;
    std::ofstream(own / "text.txt") << std::string(5000, 'a');
    const std::string program = std::filesystem::read_symlink("/proc/self/exe").replace_filename("penstock").string();
    ASSERT_EQ(std::system((program + " prepare --out " + own / "text.tokens " + own / "text.txt").c_str()), 0);
    std::ofstream(own / "config.json") << R"({
  "model": {"hidden": 32, "layers": 2, "heads": 2, "feed_forward": 64, "context": 16},
  "data": {"train": ")" << own / "text.tokens"
                                       << R"("},
  "train_micro_batch_size_per_gpu": 1,
  "optimizer": {"type": "AdamW", "params": {"lr": 0.003}},
  "zero_optimization": {
    "stage": 3,
    "offload_param": {"device": "nvme", "nvme_path": ")"
                                       << own / "swap"
                                       << R"("},
    "offload_optimizer": {"device": "nvme", "nvme_path": ")"
                                       << own / "swap"
                                       << R"("}
  },
  "memory": {"host_budget": "16MiB"},
  "keep": {"every": 1, "last": 2, "folder": ")"
                                       << own / "kept"
                                       << R"("},
  "run": {"swap_directory": ")" << own / "swap"
                                       << R"(", "directory": ")" << own / "run"
                                       << R"(", "steps": 1}
})";
    Report report("step");
    run(small(directory, {"--config", own / "config.json", "--orders", "deferred"}), report);
    ASSERT_NE(report.find("deferred: step"), nullptr);
    EXPECT_EQ(report.find("deferred: step")->rounds.size(), 2U);
    for (const char* place : {"swap", "kept", "run"}) EXPECT_FALSE(std::filesystem::exists(own / place)) << place;
}

TEST_F(StepBench, WithClippingItSpeculates) {
    const TemporaryDirectory directory;
    Report report("step");
    run(small(directory, {"--set", "gradient_clipping=1e6", "--rounds", "1"}), report);
    ASSERT_NE(report.find("within: steps updated again"), nullptr);
    EXPECT_EQ(report.find("within: steps updated again")->median(), 0);
}

TEST_F(StepBench, BadArgumentsAreRefused) {
    const TemporaryDirectory directory;
    const auto refused = [&](const std::vector<std::string>& more) { return refusal(small(directory, more)); };
    EXPECT_NE(refused({"--orders", "later"}).find("later"), std::string::npos);
    EXPECT_NE(refused({"--orders", "deferred,deferred"}).find("stands twice"), std::string::npos);
    EXPECT_NE(refused({"--set", "run.steps=3"}).find("the turns set it"), std::string::npos);
    EXPECT_NE(refused({"--set", "gradient_clippin=3"}).find("gradient_clipping"), std::string::npos);
    EXPECT_NE(refused({"--config", "not/there.json"}).find("not/there.json"), std::string::npos);
    // What the program refuses.
    EXPECT_NE(refused({"--budget", "1MiB"}).find("memory.host_budget"), std::string::npos);
    EXPECT_NE(refused({"--set", "gradient_clipping=1", "--set", "run.commit_every=2", "--orders", "within"})
                  .find("it needs run.commit_every 1"),
              std::string::npos);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

}  // namespace
}  // namespace penstock::bench
