#include "trainer/config/resume_rule.h"
#include "aio/words/error.h"

#include "tests/refusal.h"
#include "trainer/config/config.h"
#include "trainer/config/key_table.h"

#include <gtest/gtest.h>

namespace penstock::trainer {
namespace {

Settings settings_with(std::vector<std::string> overrides) {
    overrides.insert(overrides.begin(), {"run.swap_directory=s", "scheduler.type=WarmupCosineLR"});
    return make_config(Settings::parse(R"({"data": {"train": "x"}, "memory": {"host_budget": "64MiB"},
                                           "run": {"directory": "r", "steps": 30}})",
                                       "test.json", overrides))
        .settings;
}

store::ClientState snapshot(const std::vector<std::string>& overrides = {}) {
    return config_snapshot(settings_with(overrides), 2);
}

std::string refusal(const store::ClientState& stored, const std::vector<std::string>& overrides,
                    const std::vector<std::string>& change = {}, unsigned threads = 2) {
    return refusal_of(ExitCode::usage, [&] {
        check_differences(differences(settings_with(overrides), stored, threads), change, "DIR");
    });
}

// A key with a value that is not its default.
using Change = std::vector<std::string>;

class FreeKey : public ::testing::TestWithParam<Change> {};
class FixedKey : public ::testing::TestWithParam<Change> {};
class LayoutKey : public ::testing::TestWithParam<Change> {};

std::string key_of(const Change& change) {
    return change[0].substr(0, change[0].find('='));
}

TEST_P(FreeKey, MayChange) {
    EXPECT_EQ(refusal(snapshot(), GetParam()), "accepted");
}

INSTANTIATE_TEST_SUITE_P(ResumeRule, FreeKey,
                         ::testing::Values(Change{"memory.host_budget=1GiB"}, Change{"memory.prefetch_depth=0"},
                                           Change{"memory.staging_tiles=9"}, Change{"memory.activations=keep"},
                                           Change{"memory.device=emulated", "memory.device_budget=1GiB"},
                                           Change{"zero_optimization.offload_param.device=nvme"},
                                           Change{"zero_optimization.offload_optimizer.device=nvme"},
                                           Change{"aio.block_size=64KiB"}, Change{"aio.queue_depth=1"},
                                           Change{"run.steps=31"}, Change{"run.sample.tokens=0"},
                                           Change{"run.io_backend=threads"}, Change{"run.directory=other"},
                                           Change{"data.train=moved"}));

TEST_P(FixedKey, IsRefusedNamingKeyBothValuesAndRemedy) {
    const std::string message = refusal(snapshot(), GetParam());
    EXPECT_TRUE(message.starts_with(key_of(GetParam()) + " is ")) << message;
    EXPECT_NE(message.find("the run in DIR was started with "), std::string::npos) << message;
    EXPECT_NE(
        message.find("It changes the result: set it back, go on with it on purpose by --change " + key_of(GetParam())),
        std::string::npos)
        << message;
}

// The keys of the refusal's own remedy are all that it takes.
TEST_P(FixedKey, MayChangeOnPurpose) {
    std::vector<std::string> change;
    const std::vector<Difference> found = differences(settings_with(GetParam()), snapshot(), 2);
    for (const Difference& one : found) change.push_back(one.key);
    ASSERT_FALSE(change.empty());
    EXPECT_EQ(change.front(), key_of(GetParam()));
    EXPECT_NO_THROW(check_change(change));
    EXPECT_EQ(refusal(snapshot(), GetParam(), change), "accepted");
}

TEST_P(LayoutKey, IsRefusedWithoutAWayOn) {
    const std::string message = refusal(snapshot(), GetParam());
    EXPECT_TRUE(message.starts_with(key_of(GetParam()) + " is ")) << message;
    EXPECT_EQ(message.find("--change"), std::string::npos) << message;
    EXPECT_NE(message.find("hat is stored was made that way: set it back, or start a new run"), std::string::npos)
        << message;
    EXPECT_NE(refusal_of(ExitCode::usage, [] { check_change({key_of(GetParam())}); }), "accepted");
}

INSTANTIATE_TEST_SUITE_P(ResumeRule, LayoutKey,
                         ::testing::Values(Change{"model.layers=9"}, Change{"model.tied_head=true"},
                                           Change{"model.frozen=[\"head\"]"}, Change{"optimizer.type=Lion"},
                                           Change{"bf16.enabled=true"}, Change{"memory.tile_elements=4096"}));

INSTANTIATE_TEST_SUITE_P(ResumeRule, FixedKey,
                         ::testing::Values(Change{"model.context=128"}, Change{"train_micro_batch_size_per_gpu=2"},
                                           Change{"gradient_clipping=0.5"}, Change{"optimizer.params.lr=0.002"},
                                           Change{"optimizer.params.weight_decay=0.1"},
                                           Change{"optimizer.params.betas=[0.9, 0.95]"},
                                           Change{"optimizer.groups=[{\"params\": \"*\", \"lr\": 0.1}]"},
                                           Change{"scheduler.params.warmup_num_steps=5"},
                                           Change{"scheduler.params.total_num_steps=40"}, Change{"run.seed=2"},
                                           Change{"run.deterministic=true"}, Change{"run.matmul=high"}));

TEST(ResumeRule, SaysAllDifferencesAtOnce) {
    const std::vector<std::string> overrides = {"gradient_clipping=0.5", "run.seed=2"};
    EXPECT_EQ(refusal(snapshot(), overrides),
              "gradient_clipping is 0.5 but the run in DIR was started with 1; run.seed is 2 and was 1. It changes "
              "the result: set it back, go on with it on purpose by --change gradient_clipping --change run.seed, or "
              "start a new run with another store directory");
    EXPECT_TRUE(refusal(snapshot(), overrides, {"gradient_clipping"}).starts_with("run.seed is 2 but"));
}

TEST(ResumeRule, ChangesOfNothingAndOfUnknownKeys) {
    EXPECT_EQ(refusal(snapshot(), {}, {"run.seed"}), "accepted");
    EXPECT_EQ(refusal_of(ExitCode::usage, [] { check_change({"run.sead"}); }),
              "--change: key 'run.sead' is unknown; the nearest known one is 'run.seed'");
    EXPECT_NO_THROW(check_change({"aio.block_size", "data.train", "run.threads"}));
}

// A checkpoint comes from anywhere: what it holds does not reach the terminal as it is.
TEST(ResumeRule, ShowsNoControlCharacters) {
    store::ClientState stored = snapshot();
    stored["config.run.seed"] = "\x1b]0;x\x07";
    EXPECT_NE(refusal(stored, {}).find("started with <6 bytes>"), std::string::npos);
    stored["config.run.steps"] = "\x1b[2J";
    EXPECT_NE(note_of_steps(settings_with({}), stored).find("run.steps was <4 bytes>"), std::string::npos);
}

TEST(ResumeRule, NoKeyIsWithoutARule) {
    // Every fixed key is in the snapshot and every other, but the number of steps, is not.
    const store::ClientState stored = snapshot();
    for (const KeySpec& key : keys()) {
        const bool kept = stored.contains("config." + std::string(key.path));
        const bool decides = key.at_resume != AtResume::free && key.at_resume != AtResume::contents;
        EXPECT_EQ(kept, decides || key.path == "run.steps") << key.path;
    }
}

TEST(ResumeRule, EqualBatchShapesMayBeSaidInAnyWay) {
    EXPECT_EQ(refusal(snapshot({"train_batch_size=4"}), {"train_micro_batch_size_per_gpu=4"}), "accepted");
}

TEST(ResumeRule, ThreadsAreOnesThatARunCanHave) {
    const store::ClientState stored = snapshot();
    EXPECT_EQ(recorded_threads(stored), 2U);
    EXPECT_NE(refusal(stored, {}, {}, 3).find("run.threads is 3 but the run in DIR was started with 2"),
              std::string::npos);
    EXPECT_EQ(refusal(stored, {}, {"run.threads"}, 3), "accepted");
    EXPECT_THROW(recorded_threads({}), Error);
    for (const char* text : {"", "0", "-1", "4097", "100000000", "2x", "99999999999999999999"})
        EXPECT_THROW(recorded_threads({{"config.run.threads", text}}), Error) << text;
}

TEST(ResumeRule, DerivedEndOfTheScheduleFollowsTheSteps) {
    EXPECT_EQ(refusal(snapshot(), {"run.steps=60"}), "accepted");
    EXPECT_EQ(note_of_steps(settings_with({"run.steps=60"}), snapshot()),
              "run.steps was 30 and is 60; the learning rate's end moves with it (scheduler.params.total_num_steps "
              "holds it where it was)");
    EXPECT_EQ(note_of_steps(settings_with({}), snapshot()), "");
    EXPECT_EQ(refusal(snapshot({"scheduler.params.total_num_steps=40"}),
                      {"run.steps=60", "scheduler.params.total_num_steps=40"}),
              "accepted");
    EXPECT_NE(refusal(snapshot({"scheduler.params.total_num_steps=40"}), {}).find("started with 40"),
              std::string::npos);
}

TEST(ResumeRule, EveryPartOfAGroupCounts) {
    const auto with = [](const char* groups) { return std::string("optimizer.groups=") + groups; };
    const std::string group = with(R"([{"params": "*.norm", "weight_decay": 0, "betas": [0.9, 0.95]}])");
    const store::ClientState stored = snapshot({group});
    EXPECT_EQ(refusal(stored, {with(R"([{"betas": [0.9, 0.95], "weight_decay": 0.0, "params": "*.norm"}])")}),
              "accepted");
    EXPECT_NE(refusal(stored, {with(R"([{"params": "*.norm", "weight_decay": 0, "betas": [0.9, 0.99]}])")}),
              "accepted");
    EXPECT_NE(refusal(stored, {with(R"([{"params": "*", "weight_decay": 0, "betas": [0.9, 0.95]}])")}), "accepted");
    EXPECT_NE(refusal(stored, {with(R"([{"params": "*.norm", "weight_decay": 0}])")}), "accepted");
    EXPECT_NE(refusal(stored, {}), "accepted");
}

// A checkpoint of a program that had not heard of a key goes on, as long as nothing is said of it.
TEST(ResumeRule, AKeyThatCameLaterMayBeMissing) {
    store::ClientState stored = snapshot();
    ASSERT_EQ(stored.erase("config.optimizer.params.momentum"), 1U);
    ASSERT_EQ(stored.erase("config.optimizer.groups"), 1U);
    EXPECT_EQ(refusal(stored, {}), "accepted");
    EXPECT_NE(refusal(stored, {"optimizer.groups=[{\"params\": \"*\", \"lr\": 0.1}]"}).find("nothing of that name"),
              std::string::npos);
}

TEST(ResumeRule, TheDefaultMayBeSaidOrNot) {
    const std::vector<std::string> said = {"run.deterministic=false", "run.matmul=highest"};
    EXPECT_EQ(refusal(snapshot(), said), "accepted");
    EXPECT_EQ(refusal(snapshot(said), {}), "accepted");
    store::ClientState earlier = snapshot();
    EXPECT_NE(refusal(snapshot({"run.deterministic=true"}), {}), "accepted");
    ASSERT_EQ(earlier.erase("config.run.deterministic") + earlier.erase("config.run.matmul"), 2U);
    EXPECT_EQ(refusal(earlier, said), "accepted");
}

TEST(ResumeRule, RefusesAStateThatLacksAKey) {
    store::ClientState stored = snapshot();
    stored.erase("config.run.seed");
    EXPECT_NE(refusal(stored, {}).find("run.seed is 1"), std::string::npos);
}

}  // namespace
}  // namespace penstock::trainer
