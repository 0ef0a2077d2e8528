// Every step is a checkpoint: a training killed at random instants ends with the bits of one that was never killed.
#include "tests/engine/snapshot.h"
#include "tests/seeds.h"
#include "tests/trainer/program.h"
#include "tests/trainer/temporary_directory.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <map>
#include <random>
#include <sstream>
#include <thread>

namespace penstock::testing {
namespace {

constexpr int wanted_kills = 24;
constexpr const char* steps = "400";

std::vector<std::string> train_command() {
    return penstock({"train", "config.json", "--steps", steps, "--set", "run.sample.tokens=0"});
}

std::map<int, double> losses(const TemporaryDirectory& directory) {
    std::map<int, double> losses;
    std::istringstream lines(read_file(directory / "run/log.jsonl"));
    for (std::string line; std::getline(lines, line);) {
        const auto record = nlohmann::json::parse(line);
        EXPECT_TRUE(losses.emplace(record["step"], record["loss"]).second) << "step logged twice: " << line;
    }
    return losses;
}

// Starts the training again and again, killing it after a random time, until it finishes. Returns how often it was
// killed.
int train_with_kills(const TemporaryDirectory& directory, std::mt19937_64& random, int kills) {
    for (int killed = 0;; ++killed) {
        Program program(directory.path(), train_command());
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

TEST(Kill, ATrainingKilledAtRandomTimesEndsBitIdentical) {
    const std::uint64_t seed = first_seed();
    SCOPED_TRACE(replay(seed));
    std::mt19937_64 random(seed);

    const TemporaryDirectory whole;
    write_toy(whole.path());
    ASSERT_EQ(run_command(whole.path(), train_command()).code, 0);
    const Snapshot expected = read_snapshot(whole / "swap", "penstock");
    const std::map<int, double> expected_losses = losses(whole);

    int kills = 0;
    for (int trainings = 0; kills < wanted_kills && trainings < 20; ++trainings) {
        const TemporaryDirectory killed;
        write_toy(killed.path());
        kills += train_with_kills(killed, random, wanted_kills - kills);
        EXPECT_EQ(read_snapshot(killed / "swap", "penstock"), expected);
        for (const auto& [step, loss] : losses(killed)) EXPECT_EQ(loss, expected_losses.at(step)) << "step " << step;
    }
    std::printf("%d kills, %s\n", kills, replay(seed).c_str());
    EXPECT_GE(kills, 20);
}

}  // namespace
}  // namespace penstock::testing
