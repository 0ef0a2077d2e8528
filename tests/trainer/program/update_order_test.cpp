// The program with updates in another order than after backward: the same losses, and what is committed when.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <utility>

namespace penstock::testing {
namespace {

using nlohmann::json;

class UpdateOrders : public ::testing::Test {
   protected:
    UpdateOrders() { write_toy(directory_.path()); }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json"});
        return run(directory_.path(), more);
    }

    std::vector<json> log() { return read_json_lines(directory_ / "run/log.jsonl"); }

    TemporaryDirectory directory_;
};

TEST_F(UpdateOrders, ADeferredStepIsCommittedWithinTheNextAndSettledAtTheEnd) {
    ASSERT_EQ(train({"--steps", "5"}).code, 0);
    const std::vector<json> usual = log();
    for (const auto& [every, expected] : {std::pair{"1", std::vector{0, 1, 2, 3, 5}}, {"3", {0, 0, 0, 3, 5}}}) {
        std::filesystem::remove_all(directory_ / "run");
        std::filesystem::remove_all(directory_ / "swap");
        const Ended ended = train({"--json", "--steps", "5", "--set", "run.update_order=deferred", "--set",
                                   std::string("run.commit_every=") + every});
        ASSERT_EQ(ended.code, 0) << ended.errors;
        EXPECT_EQ(json::parse(ended.output)["committed"], 5);
        std::vector<int> committed;
        for (const json& step : log()) committed.push_back(step["committed"]);
        EXPECT_EQ(committed, expected);
        for (std::size_t step = 0; step < 5; ++step) EXPECT_EQ(log().at(step)["loss"], usual.at(step)["loss"]);
    }
}

TEST_F(UpdateOrders, AStepThatIsUpdatedWithinBackwardIsCommittedAtItsEnd) {
    const std::vector<std::string> within = {"--set", "run.update_order=in_backward"};
    std::vector<std::string> seldom = within;
    seldom.insert(seldom.end(), {"--set", "run.commit_every=2"});
    const Ended refused = train(seldom);
    EXPECT_EQ(refused.code, 2);
    EXPECT_NE(refused.errors.find("it needs run.commit_every 1"), std::string::npos) << refused.errors;
    const std::vector<std::string> unclipped = {"--steps", "5", "--set", "gradient_clipping=0"};
    ASSERT_EQ(train(unclipped).code, 0);
    const std::vector<json> usual = log();
    std::filesystem::remove_all(directory_ / "run");
    std::filesystem::remove_all(directory_ / "swap");
    std::vector<std::string> all = unclipped;
    all.insert(all.end(), within.begin(), within.end());
    const Ended ended = train(all);
    ASSERT_EQ(ended.code, 0) << ended.errors;
    EXPECT_NE(ended.errors.find("\"in_backward\" is an older word for \"within\""), std::string::npos) << ended.errors;
    for (std::size_t step = 0; step < 5; ++step) {
        EXPECT_EQ(log().at(step)["committed"], step + 1);
        for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(log().at(step)[key], usual.at(step)[key]) << key;
    }
}

TEST_F(UpdateOrders, ABalancedStepIsCommittedWithinTheNextAndSettledAtTheEnd) {
    const std::vector<std::string> clipped = {"--json", "--steps", "6", "--set", "gradient_clipping=1.8"};
    ASSERT_EQ(train(clipped).code, 0);
    const std::vector<json> usual = log();
    for (const char* share : {"0.5", "1"}) {
        std::filesystem::remove_all(directory_ / "run");
        std::filesystem::remove_all(directory_ / "swap");
        std::vector<std::string> all = clipped;
        all.insert(all.end(),
                   {"--set", "run.update_order=balanced", "--set", std::string("run.deferred_share=") + share});
        const Ended ended = train(all);
        ASSERT_EQ(ended.code, 0) << ended.errors;
        EXPECT_EQ(json::parse(ended.output)["committed"], 6);
        for (std::size_t step = 0; step < 6; ++step) {
            for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(log().at(step)[key], usual.at(step)[key]);
            EXPECT_EQ(log().at(step)["committed"], step == 5 ? 6 : step);
        }
    }
}

TEST_F(UpdateOrders, AStepThatWasSpeculatedInVainIsUpdatedAgain) {
    const std::vector<std::string> clipped = {"--json", "--steps", "24", "--set", "gradient_clipping=1.8"};
    ASSERT_EQ(train(clipped).code, 0);
    const std::vector<json> usual = log();
    std::filesystem::remove_all(directory_ / "run");
    std::filesystem::remove_all(directory_ / "swap");
    std::vector<std::string> all = clipped;
    all.insert(all.end(), {"--set", "run.update_order=speculative"});
    const Ended ended = train(all);
    ASSERT_EQ(ended.code, 0) << ended.errors;
    int again = 0;
    int in_a_row = 2;  // were clipped: then nothing is speculated on, nor in the first step: it is deferred
    for (std::size_t step = 0; step < 24; ++step) {
        const json now = log().at(step);
        for (const char* key : {"loss", "grad_norm"}) EXPECT_EQ(now[key], usual.at(step)[key]) << key;
        const bool strikes = now["grad_norm"].get<double>() > 1.8;
        const bool deferred = in_a_row >= 2;
        in_a_row = strikes ? in_a_row + 1 : 0;
        const bool is_again = now.contains("updated_again");
        EXPECT_EQ(is_again, !deferred && strikes) << now;
        EXPECT_EQ(now["committed"], (deferred || is_again) && step < 23 ? step : step + 1) << now;
        again += is_again ? 1 : 0;
    }
    EXPECT_GT(again, 0);
    EXPECT_LT(again, 24);
    EXPECT_EQ(json::parse(ended.output)["steps_updated_again"], again);
    EXPECT_NE(ended.errors.find("  updated again"), std::string::npos) << ended.errors;
    for (const auto& [setting, needed] :
         {std::pair{"run.commit_every=2", "run.commit_every 1"},
          {"run.commit_every=scratch", "run.commit_every 1"},
          {"zero_optimization.offload_param.device=cpu", "zero_optimization.offload_param.device \"nvme\""},
          {"zero_optimization.offload_optimizer.device=cpu", "zero_optimization.offload_optimizer.device \"nvme\""}}) {
        all.resize(clipped.size() + 2);
        all.insert(all.end(), {"--set", setting});
        const Ended refused = train(all);
        EXPECT_EQ(refused.code, 2);
        EXPECT_NE(refused.errors.find(std::string("it needs ") + needed), std::string::npos) << refused.errors;
    }
}

TEST_F(UpdateOrders, ADeferredStepIsCommittedWhenASignalStopsTheRun) {
    const std::vector<std::string> deferred = {
        "train", "config.json", "--json", "--steps", "100000", "--set", "run.update_order=deferred"};
    Program program(directory_.path(), penstock(deferred));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGTERM);
    const Ended ended = program.wait();
    ASSERT_EQ(ended.code, 75) << ended.errors;
    const json result = json::parse(ended.output);
    EXPECT_EQ(result["committed"], result["steps"]);
    // The order may change at each resume.
    const Ended resumed = train({"--json", "--steps", std::to_string(result["steps"].get<int>() + 1)});
    EXPECT_EQ(json::parse(resumed.output)["resumed_from_step"], result["steps"]);
}

}  // namespace
}  // namespace penstock::testing
