// Runs that go on with other settings than they were started with, because their user says so.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <filesystem>

namespace penstock::testing {
namespace {

using nlohmann::json;

class Changing : public ::testing::Test {
   protected:
    Changing() {
        write_toy(directory_.path());
        const Ended begun = train({"--steps", "3", "--set", "keep.every=3"});
        if (begun.code != 0) throw std::runtime_error(begun.errors);
    }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json"});
        return run(directory_.path(), more);
    }
    std::vector<double> losses(const std::string& directory = "run") {
        std::vector<double> losses;
        for (const json& step : read_json_lines(directory_ / (directory + "/log.jsonl")))
            losses.push_back(step["loss"]);
        return losses;
    }
    // Rows of data that the newest commit has seen.
    std::string rows() {
        const Ended shown = run(directory_.path(), {"ckpt", "show", "swap", "--json"});
        return json::parse(shown.output)["client"]["data.rows"];
    }
    static bool says(const Ended& ended, const std::string& part) {
        return ended.errors.find(part) != std::string::npos;
    }

    TemporaryDirectory directory_;
};

TEST_F(Changing, ALearningRateIsChangedOnPurposeOnceAndForAll) {
    const std::vector<std::string> rate = {"--set", "optimizer.params.lr=0.01"};
    const auto with_rate = [&](std::vector<std::string> more) {
        more.insert(more.begin(), rate.begin(), rate.end());
        return train(more);
    };
    const Ended refused = with_rate({});
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(says(refused,
                     "go on with it on purpose by --change optimizer.params.lr --change "
                     "scheduler.params.warmup_max_lr, or start a new run"))
        << refused.errors;
    const std::vector<std::string> change = {"--change", "optimizer.params.lr", "--change",
                                             "scheduler.params.warmup_max_lr"};
    std::vector<std::string> one_step = change;
    one_step.insert(one_step.end(), {"--steps", "4"});
    const Ended changed = with_rate(one_step);
    ASSERT_EQ(changed.code, 0) << changed.errors;
    EXPECT_TRUE(says(changed, "optimizer.params.lr was 0.003 and is 0.01 from step 4 on")) << changed.errors;
    EXPECT_EQ(train().code, 2) << "the old rate is a change now";
    const Ended on = with_rate({"--steps", "5"});
    EXPECT_EQ(on.code, 0) << on.errors;
    EXPECT_FALSE(says(on, "from step")) << on.errors;
    EXPECT_EQ(with_rate(change).code, 0) << "the same command again";

    // Step 4 began with the weights of step 3, step 5 did not.
    const std::vector<double> in_two = losses();
    std::filesystem::remove_all(directory_ / "swap");
    std::filesystem::remove_all(directory_ / "run");
    ASSERT_EQ(train().code, 0);
    const std::vector<double> unchanged = losses();
    ASSERT_EQ(in_two.size(), 6U);
    EXPECT_EQ(in_two[3], unchanged[3]);
    EXPECT_NE(in_two[4], unchanged[4]);
}

TEST_F(Changing, AnotherBatchGoesOnWithTheRowsThatComeNext) {
    EXPECT_EQ(rows(), "12");
    const std::vector<std::string> keys = {"--change", "train_batch_size", "--change",
                                           "train_micro_batch_size_per_gpu"};
    std::vector<std::string> half = keys;
    half.insert(half.end(), {"--steps", "4", "--set", "train_micro_batch_size_per_gpu=1"});
    const Ended halved = train(half);
    ASSERT_EQ(halved.code, 0) << halved.errors;
    EXPECT_EQ(rows(), "14");
    std::vector<std::string> again = keys;
    again.insert(again.end(), {"--steps", "5"});
    ASSERT_EQ(train(again).code, 0);
    EXPECT_EQ(rows(), "18");
}

TEST_F(Changing, OtherDataIsBegunAtItsBeginning) {
    write_file(directory_ / "other.txt", toy_text(20000, 2));
    ASSERT_EQ(run(directory_.path(), {"prepare", "--out", "other.tokens", "other.txt"}).code, 0);
    const std::vector<std::string> other = {"--set", "data.train=other.tokens", "--steps", "4"};
    EXPECT_EQ(train(other).code, 2);
    std::vector<std::string> on_purpose = other;
    on_purpose.insert(on_purpose.end(), {"--change", "data.train"});
    const Ended changed = train(on_purpose);
    ASSERT_EQ(changed.code, 0) << changed.errors;
    EXPECT_TRUE(says(changed, "data.train was contents ")) << changed.errors;
    EXPECT_EQ(rows(), "4");
    const Ended on = train({"--set", "data.train=other.tokens", "--steps", "5"});
    EXPECT_EQ(on.code, 0) << on.errors;
    EXPECT_EQ(rows(), "8") << "it is the run's data now";
    EXPECT_EQ(train().code, 2);
}

TEST_F(Changing, ARunIsForkedFromASnapshotWithOtherSettings) {
    const std::string log = read_file(directory_ / "run/log.jsonl");
    const std::string manifest = read_file(directory_ / "swap/manifest.0");
    const std::vector<std::string> fork = {
        "--resume-from", "swap/kept/step-3",     "--set", "zero_optimization.offload_param.nvme_path=fork",
        "--set",         "run.directory=forked", "--set", "gradient_clipping=0.01"};
    EXPECT_EQ(train(fork).code, 2);
    std::vector<std::string> on_purpose = fork;
    on_purpose.insert(on_purpose.end(), {"--change", "gradient_clipping"});
    const Ended forked = train(on_purpose);
    ASSERT_EQ(forked.code, 0) << forked.errors;
    EXPECT_TRUE(says(forked, "gradient_clipping was 1 and is 0.01 from step 4 on")) << forked.errors;
    EXPECT_EQ(read_file(directory_ / "run/log.jsonl"), log);
    EXPECT_EQ(read_file(directory_ / "swap/manifest.0"), manifest);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> ours = losses("forked");
    const std::vector<double> theirs = losses();
    ASSERT_EQ(theirs.size(), 6U);
    ASSERT_EQ(ours.size(), 3U);
    EXPECT_EQ(ours[0], theirs[3]) << "the same weights and rows";
    EXPECT_NE(ours[1], theirs[4]);
}

TEST_F(Changing, ThreadsCanBeLetGo) {
    EXPECT_EQ(train({"--set", "run.threads=2", "--steps", "4"}).code, 2);
    const Ended changed = train({"--set", "run.threads=2", "--steps", "4", "--change", "run.threads"});
    EXPECT_EQ(changed.code, 0) << changed.errors;
    EXPECT_TRUE(says(changed, "run.threads was 1 and is 2 from step 4 on")) << changed.errors;
}

TEST_F(Changing, WhatIsStoredThatWayCannotChange) {
    const Ended refused = train({"--set", "model.layers=3", "--change", "model.layers"});
    EXPECT_EQ(refused.code, 2);
    EXPECT_TRUE(says(refused, "--change model.layers: what is stored was made by it")) << refused.errors;
}

}  // namespace
}  // namespace penstock::testing
