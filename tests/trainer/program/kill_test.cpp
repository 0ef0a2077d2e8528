// Every step is a checkpoint: a training killed at random instants ends with the bits of one that was never killed.
#include "tests/seeds.h"
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"
#include "tests/zero_infinity/engine/snapshot.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

constexpr const char* steps = "400";

using Arguments = std::vector<std::string>;

Arguments train_command(const Arguments& more) {
    Arguments all = {"train", "config.json", "--steps", steps, "--set", "run.sample.tokens=0"};
    all.insert(all.end(), more.begin(), more.end());
    return penstock(all);
}

std::map<int, double> losses(const TemporaryDirectory& directory) {
    std::map<int, double> losses;
    for (const nlohmann::json& record : read_json_lines(directory / "run/log.jsonl"))
        EXPECT_TRUE(losses.emplace(record["step"], record["loss"]).second) << "step logged twice: " << record;
    return losses;
}

// Starts the training again and again, killing it after a random time, until it finishes. Returns how often it was
// killed.
int train_with_kills(const TemporaryDirectory& directory, std::mt19937_64& random, int kills, const Arguments& more) {
    for (int killed = 0;; ++killed) {
        Program program(directory.path(), train_command(more));
        if (killed < kills) {
            // From the first moments (locking, drawing weights) to well within the steps.
            std::this_thread::sleep_for(std::chrono::milliseconds(random() % 700));
            ::kill(program.pid(), SIGKILL);
        }
        const Ended ended = program.wait();
        if (ended.code == 0) return killed;
        EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.errors;
        if (ended.code != 128 + SIGKILL) return killed;
    }
}

// What a training leaves that is killed `wanted` times and then finished is what one leaves that was never killed.
void expect_kills_change_nothing(int wanted, const Arguments& more) {
    const std::uint64_t seed = first_seed();
    SCOPED_TRACE(replay(seed));
    std::mt19937_64 random(seed);

    const TemporaryDirectory whole;
    write_toy(whole.path());
    ASSERT_EQ(run_command(whole.path(), train_command({})).code, 0);
    const Snapshot expected = read_snapshot(whole / "swap", "penstock");
    const std::map<int, double> expected_losses = losses(whole);

    int kills = 0;
    for (int trainings = 0; kills < wanted && trainings < wanted; ++trainings) {
        const TemporaryDirectory killed;
        write_toy(killed.path());
        kills += train_with_kills(killed, random, wanted - kills, more);
        const Snapshot left = read_snapshot(killed / "swap", "penstock");
        EXPECT_EQ(left.objects, expected.objects);
        EXPECT_EQ(left.client, expected.client);
        for (const auto& [step, loss] : losses(killed)) EXPECT_EQ(loss, expected_losses.at(step)) << "step " << step;
    }
    std::printf(
        "RESULT training kills: %d kills; every byte and loss compared with a training that was never killed; %s\n",
        kills, replay(seed).c_str());
    EXPECT_GE(kills, wanted * 5 / 6);
}

int wanted_kills(int usual) {
    return static_cast<int>(seed_options().runs.value_or(static_cast<std::uint64_t>(usual)));
}

TEST(Kill, ATrainingKilledAtRandomTimesEndsBitIdentical) {
    expect_kills_change_nothing(wanted_kills(24), {});
}

TEST(Kill, SoDoesOneThatCommitsEveryThirdStepAndHoldsBackWhatHostMemoryHas) {
    expect_kills_change_nothing(wanted_kills(12),
                                {"--set", "run.commit_every=3", "--set", "zero_optimization.offload_param.device=cpu",
                                 "--set", "zero_optimization.offload_optimizer.device=cpu"});
}

}  // namespace
}  // namespace penstock::testing
