// `penstock plan`: what it says comes true in the run, and nothing stays.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using nlohmann::json;

class Plan : public ::testing::Test {
   protected:
    Plan() { write_toy(directory_.path()); }

    Ended plan(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"plan", "config.json", "--seconds", "0.05"});
        return run(directory_.path(), more);
    }
    json plan_json(std::vector<std::string> more = {}) {
        more.emplace_back("--json");
        const Ended ended = plan(more);
        EXPECT_EQ(ended.code, 0) << ended.errors;
        return json::parse(ended.output);
    }
    std::vector<std::string> content() {  // without .stdout and .stderr, which are ours
        std::vector<std::string> names;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path()))
            if (!entry.path().filename().string().starts_with('.')) names.push_back(entry.path().string());
        std::sort(names.begin(), names.end());
        return names;
    }

    TemporaryDirectory directory_;
};

TEST_F(Plan, LeavesNothingAndNeedsNoData) {
    std::filesystem::remove(directory_ / "text.tokens");
    const std::vector<std::string> before = content();
    EXPECT_EQ(plan().code, 0);
    EXPECT_EQ(content(), before);
}

// In each order, tier and durability, to the byte.
TEST_F(Plan, SaysTheBytesThatARunMoves) {
    const std::vector<std::vector<std::string>> ways = {
        {},
        {"--set", "run.update_order=deferred"},
        {"--set", "gradient_clipping=0", "--set", "run.update_order=within"},
        {"--set", "gradient_clipping=0", "--set", "run.update_order=balanced"},
        {"--set", "zero_optimization.offload_param.device=cpu"},
        {"--set", "zero_optimization.offload_param.device=cpu", "--set", "run.commit_every=2"},
        {"--set", "memory.fill_host_budget=true", "--set", "memory.host_budget=1MiB", "--set", "model.hidden=64"},
        {"--set", "memory.activation_budget=8KiB"},
    };
    for (std::vector<std::string> way : ways) {
        SCOPED_TRACE(::testing::PrintToString(way));
        std::filesystem::remove_all(directory_ / "run");
        std::filesystem::remove_all(directory_ / "swap");
        way.insert(way.end(), {"--set", "memory.activations=recompute"});  // graphs are measured
        std::vector<std::string> bytes_only = way;
        bytes_only.emplace_back("--bytes-only");
        const json planned = plan_json(bytes_only);
        way.insert(way.begin(), {"train", "config.json", "--json", "--steps", "6"});
        const Ended trained = run(directory_.path(), way);
        ASSERT_EQ(trained.code, 0) << trained.errors;
        const json summary = json::parse(trained.output);
        EXPECT_EQ(planned["bytes_per_param_step"], summary["planned_bytes_per_param_step"]);
        EXPECT_EQ(planned["params"], summary["params"]);
        EXPECT_EQ(planned["trainable_params"], summary["trainable_params"]);
        EXPECT_EQ(planned["activation_bytes"], summary["activation_peak_bytes"]);
        EXPECT_LE(summary["pool_peak_bytes"], planned["pool"]["used_bytes"]);
        // Where the last update, or some units of it, belong to no step.
        const bool deferred = planned["update_order"] == "deferred" || planned["deferred_share"] != 0;
        if (!deferred) {
            EXPECT_EQ((planned["nvme_read_bytes"].get<std::uint64_t>() +
                       planned["activation_nvme_read_bytes"].get<std::uint64_t>()) *
                          6,
                      summary["nvme_read_bytes"].get<std::uint64_t>());
        }
        for (const json& record : read_json_lines(directory_ / "run/log.jsonl")) {
            if (!record.contains("loss")) continue;
            EXPECT_EQ(record.value("activation_nvme_bytes", 0U), planned["activation_nvme_bytes"]);
        }
        EXPECT_EQ(planned["spill_bytes"], planned["activation_nvme_bytes"]) << "gradients stay";
        std::uint64_t disk = 0;
        for (const auto& entry : std::filesystem::directory_iterator(directory_ / "swap"))
            if (entry.is_regular_file()) disk += entry.file_size();
        EXPECT_GE(disk, planned["store_bytes"].get<std::uint64_t>());
        EXPECT_LE(disk, planned["store_bytes"].get<std::uint64_t>() + (2U << 20));
    }
}

// Of each of several, and no times; that its figures come true is tests/zero_infinity/plan/ranks/ranks_plan_test.cpp's.
TEST_F(Plan, SaysWhatSeveralRanksTake) {
    const std::vector<std::string> before = content();
    const json alone = plan_json({"--bytes-only", "--set", "zero_optimization.offload_param.device=cpu"});
    const json planned = plan_json({"--ranks", "4", "--ranks-per-node", "2"});
    EXPECT_EQ(content(), before);
    const json& ranks = planned.at("of_ranks");
    EXPECT_EQ(planned["tokens_per_step"], 4 * alone["tokens_per_step"].get<std::uint64_t>());
    EXPECT_LT(planned["nvme_write_bytes"], alone["nvme_write_bytes"]);
    EXPECT_EQ(ranks["node_pool_bytes"], 2 * planned["pool"]["used_bytes"].get<std::uint64_t>());
    EXPECT_EQ(ranks["node_store_bytes"], 2 * planned["store_bytes"].get<std::uint64_t>());
    EXPECT_GT(ranks["gathered_bytes"], 0);
    EXPECT_EQ(ranks["zero_bytes"][0], 16 * planned["params"].get<double>());
    EXPECT_FALSE(planned.contains("step"));
    EXPECT_NE(planned["unmeasured"].get<std::string>().find("not forecast"), std::string::npos);
    EXPECT_TRUE(planned["others"].empty());
    const Ended words = plan({"--ranks", "4", "--ranks-per-node", "2"});
    for (const char* word : {"ranks ", "2 of a node", "all 4", "stage 3", "penstock-bench ranks"})
        EXPECT_NE(words.output.find(word), std::string::npos) << word << "\n" << words.output;
    EXPECT_EQ(plan({"--ranks", "2", "--ranks-per-node", "4"}).code, 2);
    EXPECT_EQ(plan({"--ranks", "2", "--set", "memory.gradients=nvme"}).code, 2) << "which comes later";
    EXPECT_EQ(plan({"--ranks", "2", "--set", "keep.every=2"}).code, 0);
}

// What they are on a given machine nobody can say: that they are whole, and agree with each other.
TEST_F(Plan, SaysTimesLanesAndWhatWouldBeFaster) {
    const json planned = plan_json({"--set", "gradient_clipping=0"});
    const json& step = planned.at("step");
    const double sum = step["forward_s"].get<double>() + step["backward_s"].get<double>() +
                       step["update_s"].get<double>() + step["commit_s"].get<double>();
    EXPECT_NEAR(step["seconds"], sum, 1e-6);
    EXPECT_GT(step["seconds"], 0);
    EXPECT_EQ(step["nvme_read_bytes"].get<double>() + 0.5 > planned["nvme_read_bytes"].get<double>(), true);
    for (const auto& [lane, seconds] : step.at("lanes").items()) {
        EXPECT_GE(seconds, 0) << lane;
        EXPECT_EQ(seconds == 0, lane == "lost_s" && planned["measured"]["contended_compute"] == 1) << lane;
    }
    EXPECT_GT(planned["measured"]["read_bytes_per_s"], 0);
    EXPECT_GT(planned["written_bytes_per_day"], 0);
    double last = 0;
    ASSERT_GE(planned["others"].size(), 2U);
    for (const json& other : planned["others"]) {
        EXPECT_GE(other["step"]["seconds"], last);
        last = other["step"]["seconds"];
        EXPECT_NE(other["set"].dump().find("="), std::string::npos);
    }
    const Ended words = plan();
    for (const char* word : {"model ", "memory ", "NVMe ", "measured ", "step ", "lanes ", "decides ", "wear "})
        EXPECT_NE(words.output.find(word), std::string::npos) << word << "\n" << words.output;
}

// To the byte, and as many as a run keeps.
TEST_F(Plan, SaysWhatKeptGraphsTake) {
    const json recomputed = plan_json({"--set", "memory.activations=recompute"});
    EXPECT_EQ(recomputed["graph_bytes"], 0);
    EXPECT_EQ(recomputed["kept_units"], 0);
    std::uint64_t all = 0;
    for (const json& other : recomputed["others"])
        if (other["set"].dump().find("memory.activations=auto") != std::string::npos) all = other["graph_bytes"];
    ASSERT_GT(all, 0U) << recomputed;
    for (const std::uint64_t budget : {2 * all, all / 2, std::uint64_t{0}}) {
        SCOPED_TRACE(budget);
        std::filesystem::remove_all(directory_ / "run");
        std::filesystem::remove_all(directory_ / "swap");
        std::vector<std::string> way = {"--set", "memory.activations=keep", "--set",
                                        "memory.graph_budget=" + std::to_string(budget)};
        const json planned = plan_json(way);
        way.insert(way.begin(), {"train", "config.json", "--json"});
        const Ended trained = run(directory_.path(), way);
        ASSERT_EQ(trained.code, 0) << trained.errors;
        EXPECT_EQ(planned["activation_bytes"], json::parse(trained.output)["activation_peak_bytes"]);
        EXPECT_EQ(planned["graph_bytes"] == 0, budget == 0);
        EXPECT_EQ(planned["graph_bytes"] == all, budget > all);
    }
}

// This machine has room for all of them.
TEST_F(Plan, SaysThatNoUnitRunsTwiceWhereThereIsRoom) {
    const json planned = plan_json();
    EXPECT_EQ(planned["kept_units"], planned["units"].get<int>() - 1);
    EXPECT_GT(planned["graph_bytes"], 0);
    const Ended trained = run(directory_.path(), {"train", "config.json", "--json"});
    ASSERT_EQ(trained.code, 0) << trained.errors;
    EXPECT_EQ(planned["activation_bytes"], json::parse(trained.output)["activation_peak_bytes"]);
    EXPECT_EQ(trained.errors.find("given up"), std::string::npos) << trained.errors;
    EXPECT_NE(plan().output.find("graphs, so that no unit runs twice"), std::string::npos);
    EXPECT_TRUE(plan_json({"--bytes-only"})["kept_units"].is_null());
}

// By calls of units, where keep does it by units.
TEST_F(Plan, SaysWhichGraphsABudgetKeeps) {
    const auto all = plan_json()["graph_bytes"].get<std::uint64_t>();
    const std::vector<std::string> budget = {"--set", "memory.graph_budget=" + std::to_string(all / 2)};
    const json planned = plan_json(budget);
    EXPECT_GT(planned["kept_units"], 0);
    EXPECT_LT(planned["kept_units"], planned["units"].get<int>() - 1);
    EXPECT_LE(planned["graph_bytes"], all / 2);
    const Ended trained = run(directory_.path(), {"train", "config.json", "--json", budget[0], budget[1]});
    ASSERT_EQ(trained.code, 0) << trained.errors;
    const auto peak = json::parse(trained.output)["activation_peak_bytes"].get<std::uint64_t>();
    EXPECT_GE(peak, planned["activation_bytes"]);
    EXPECT_LE(peak, planned["activation_bytes"].get<std::uint64_t>() + all / 2);
    EXPECT_NE(trained.errors.find("graphs of"), std::string::npos) << "what is recomputed is said: " << trained.errors;
    EXPECT_NE(plan(budget).output.find("nearest to the loss: the others run again in backward"), std::string::npos);
}

// What is frozen at the beginning has no gradient to make, and so no graph.
TEST_F(Plan, SaysWhatKeptGraphsTakeWhereUnitsAreFrozen) {
    for (const char* frozen : {R"(["embedding"])", R"(["embedding","blocks.0"])", R"(["blocks.0"])"}) {
        SCOPED_TRACE(frozen);
        std::filesystem::remove_all(directory_ / "run");
        std::filesystem::remove_all(directory_ / "swap");
        std::vector<std::string> way = {"--set", "memory.activations=keep", "--set",
                                        std::string("model.frozen=") + frozen};
        const json planned = plan_json(way);
        way.insert(way.begin(), {"train", "config.json", "--json"});
        const Ended trained = run(directory_.path(), way);
        ASSERT_EQ(trained.code, 0) << trained.errors;
        EXPECT_EQ(planned["activation_bytes"], json::parse(trained.output)["activation_peak_bytes"]);
    }
    const json unknown = plan_json({"--set", "memory.activations=keep", "--bytes-only"});
    EXPECT_TRUE(unknown["graph_bytes"].is_null());
}

TEST_F(Plan, ATrainingSaysItFirstAndWhatCameOfItLast) {
    const Ended trained = run(directory_.path(), {"train", "config.json", "--plan", "--json"});
    ASSERT_EQ(trained.code, 0) << trained.errors;
    const std::size_t first = trained.errors.find("plan: a step takes ");
    const std::size_t model = trained.errors.find("model: ");
    const std::size_t last = trained.errors.find("plan        steps of ");
    ASSERT_NE(last, std::string::npos) << trained.errors;
    EXPECT_LT(first, model);
    EXPECT_LT(model, last);
    EXPECT_GT(json::parse(trained.output)["planned_step_seconds"], 0);
    std::filesystem::remove_all(directory_ / "run");
    std::filesystem::remove_all(directory_ / "swap");
    const json unplanned = json::parse(run(directory_.path(), {"train", "config.json", "--json"}).output);
    EXPECT_TRUE(unplanned["planned_step_seconds"].is_null());
    EXPECT_NE(trained.errors.find("plan: a step reads "), std::string::npos) << "bytes are said always";
    EXPECT_EQ(json::parse(trained.output)["final_loss"], unplanned["final_loss"]);
}

// Without a configuration or a file of tokens.
TEST_F(Plan, OfAShapeAlone) {
    const std::string shape = "hidden=64,layers=3,heads=2,feed_forward=128,context=32";
    const Ended ended = run(directory_.path(), {"plan", "--model", shape, "--dir", ".", "--seconds", "0.01",
                                                "--endurance", "600", "--json", "--set", "gradient_clipping=0"});
    ASSERT_EQ(ended.code, 0) << ended.errors;
    const json planned = json::parse(ended.output);
    EXPECT_EQ(planned["units"], 5);
    EXPECT_EQ(planned["tokens_per_step"], 32);
    EXPECT_NEAR(planned["days_to_endurance"].get<double>() * planned["written_bytes_per_day"].get<double>(), 6e14, 1);
    const Ended wrong = run(directory_.path(), {"plan", "--model", "hiden=64"});
    EXPECT_EQ(wrong.code, 2);
    EXPECT_NE(wrong.errors.find("model.hidden"), std::string::npos) << wrong.errors;
    EXPECT_EQ(run(directory_.path(), {"plan", "--model", shape, "config.json"}).code, 2);
}

TEST_F(Plan, WhatDoesNotFitIsRefusedWithTheLightestSettings) {
    const std::vector<std::string> larger = {"--set", "model.hidden=256", "--set", "model.feed_forward=1024"};
    const std::vector<std::vector<std::string>> ways = {
        {"--set", "memory.host_budget=1MiB"},
        {"--set", "memory.host_budget=1MiB", "--set", "memory.fill_host_budget=true"},
        {"--set", "memory.host_budget=60TiB", "--set", "memory.activation_budget=50TiB"},
    };
    for (std::vector<std::string> way : ways) {
        SCOPED_TRACE(::testing::PrintToString(way));
        way.insert(way.begin(), larger.begin(), larger.end());
        const Ended refused = plan(way);
        EXPECT_EQ(refused.code, 3);
        EXPECT_NE(refused.errors.find("gradients"), std::string::npos) << refused.errors;
        const std::size_t at = refused.errors.find("--set memory.host_budget=");
        ASSERT_NE(at, std::string::npos) << refused.errors;
        std::istringstream words(refused.errors.substr(at));
        for (std::string word; words >> word;) way.push_back(word);
        way.emplace_back("--bytes-only");
        EXPECT_EQ(plan(way).code, 0);
        EXPECT_TRUE(refused.output.empty());
    }
}

// No other setting would help.
TEST_F(Plan, ABudgetThatOneInputDoesNotFitIsRefusedWithWhatItMustBe) {
    const std::vector<std::string> way = {"--set", "memory.activation_budget=4KiB", "--set", "model.hidden=256",
                                          "--bytes-only"};
    const Ended refused = plan(way);
    EXPECT_EQ(refused.code, 3);
    EXPECT_EQ(refused.errors.find("lightest"), std::string::npos) << refused.errors;
    const std::size_t at = refused.errors.find("between two units takes ");
    ASSERT_NE(at, std::string::npos) << refused.errors;
    std::istringstream words(refused.errors.substr(at + 24));
    std::string least;
    words >> least;
    EXPECT_EQ(plan({"--set", "memory.activation_budget=" + least, way[2], way[3], way[4]}).code, 0) << least;
}

TEST_F(Plan, RefusesWhatTrainRefuses) {
    const Ended wrong = plan({"--set", "gradient_clippin=1"});
    EXPECT_EQ(wrong.code, 2);
    EXPECT_NE(wrong.errors.find("gradient_clipping"), std::string::npos) << wrong.errors;
    EXPECT_EQ(run(directory_.path(), {"plan", "nothing.json"}).code, 2);
    EXPECT_EQ(run(directory_.path(), {"plan"}).code, 2);
}

TEST_F(Plan, OfADeviceWithMemoryOfItsOwnSaysBytesAndThatTimesAreNotKnown) {
    const json planned = plan_json({"--set", "memory.device=emulated", "--set", "memory.device_budget=64MiB"});
    EXPECT_FALSE(planned.contains("step"));
    EXPECT_NE(planned["unmeasured"].get<std::string>().find("not forecast"), std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
