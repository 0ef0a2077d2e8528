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

std::string refusal(const store::ClientState& stored, const std::vector<std::string>& overrides) {
    return refusal_of(ExitCode::usage, [&] { check_resume(settings_with(overrides), stored, "DIR"); });
}

// A key with a value that is not its default.
using Change = std::vector<std::string>;

class FreeKey : public ::testing::TestWithParam<Change> {};
class FixedKey : public ::testing::TestWithParam<Change> {};

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
    const std::string key = GetParam()[0].substr(0, GetParam()[0].find('='));
    const std::string message = refusal(snapshot(), GetParam());
    EXPECT_NE(message.find(key + " is "), std::string::npos) << message;
    EXPECT_NE(message.find("the run in DIR was started with "), std::string::npos) << message;
    EXPECT_NE(message.find("set it back, or start a new run"), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    ResumeRule, FixedKey,
    ::testing::Values(Change{"model.layers=9"}, Change{"model.tied_head=true"}, Change{"model.frozen=[\"head\"]"},
                      Change{"model.context=128"}, Change{"train_micro_batch_size_per_gpu=2"},
                      Change{"gradient_clipping=0.5"}, Change{"optimizer.params.lr=0.002"},
                      Change{"optimizer.params.weight_decay=0.1"}, Change{"optimizer.params.betas=[0.9, 0.95]"},
                      Change{"optimizer.type=Lion"}, Change{"optimizer.groups=[{\"params\": \"*\", \"lr\": 0.1}]"},
                      Change{"scheduler.params.warmup_num_steps=5"}, Change{"scheduler.params.total_num_steps=40"},
                      Change{"bf16.enabled=true"}, Change{"memory.tile_elements=4096"}, Change{"run.seed=2"},
                      Change{"run.threads=3"}));

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

TEST(ResumeRule, ThreadsZeroMeansTheRecordedNumber) {
    const store::ClientState stored = snapshot();
    EXPECT_EQ(recorded_threads(stored), 2U);
    EXPECT_EQ(refusal(stored, {"run.threads=0"}), "accepted");
    EXPECT_EQ(refusal(stored, {"run.threads=2"}), "accepted");
    EXPECT_THROW(recorded_threads({}), Error);
}

TEST(ResumeRule, DerivedEndOfTheScheduleFollowsTheSteps) {
    const auto notes = check_resume(settings_with({"run.steps=60"}), snapshot(), "DIR");
    ASSERT_EQ(notes.size(), 1U);
    EXPECT_EQ(notes[0], "run.steps was 30 and is 60; the learning rate's end moves with it");
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

TEST(ResumeRule, RefusesAStateThatLacksAKey) {
    store::ClientState stored = snapshot();
    stored.erase("config.run.seed");
    EXPECT_NE(refusal(stored, {}).find("run.seed is 1"), std::string::npos);
}

}  // namespace
}  // namespace penstock::trainer
