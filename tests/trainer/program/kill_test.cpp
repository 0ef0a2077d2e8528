// Every step is a checkpoint: a training killed at random instants ends with the bits of one that was never killed.
#include "tests/seeds.h"
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"
#include "tests/zero_infinity/engine/snapshot.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

constexpr const char* steps = "150";  // some seconds, as the kills of a training take

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

// What the training says of itself: the last number after `words` in its standard error.
std::optional<int> last_number(const std::string& errors, const std::string& words) {
    const std::size_t found = errors.rfind(words);
    if (found == std::string::npos) return std::nullopt;
    return std::atoi(errors.c_str() + found + words.size());
}

// Where kills fell, as far as a training had told.
struct Kills {
    int starting = 0;  // it had said nothing of its store yet
    int creating = 0;  // a new run, before its first step
    int resuming = 0;  // before the first step after a resume
    int steps = 0;

    int all() const { return starting + creating + resuming + steps; }
    void count(const std::string& errors) {
        if (errors.find("  loss ") != std::string::npos) return void(++steps);
        if (errors.find("resumed at step ") != std::string::npos) return void(++resuming);
        if (errors.find("a new run: ") != std::string::npos) return void(++creating);
        ++starting;
    }
};

// A training that is started again and again.
class Reports {
   public:
    // Whoever says that a step is committed goes on from there, or from a later one.
    void check(const Ended& life) {
        const std::optional<int> resumed = last_number(life.errors, "resumed at step ");
        EXPECT_GE(resumed.value_or(reported_.value_or(0)), reported_.value_or(0)) << life.errors;
        EXPECT_FALSE(reported_ && life.errors.find("a new run: ") != std::string::npos) << life.errors;
        if (const auto committed = last_number(life.errors, "  committed ")) {
            EXPECT_GE(*committed, reported_.value_or(0)) << life.errors;
            reported_ = committed;
        }
    }
    bool any() const { return reported_.has_value(); }

   private:
    std::optional<int> reported_;
};

// From the first moments (locking, drawing weights) to well within the steps, in turn: some time after the start, after
// the first words, when a store is created or read, or after a step. What a loaded machine takes for them is waited
// for. A store is created within a few milliseconds, where nothing is committed yet.
void kill_at_random(Program& program, std::mt19937_64& random, int before, const Reports& reports) {
    const int way = before % 4;
    const bool anew = !reports.any();
    const int longest_ms[] = {60, anew ? 40 : 200, 700, 700};
    if (way == 1) static_cast<void>(program.says(anew ? "a new run: " : "penstock: I/O: "));
    if (way > 1) static_cast<void>(program.says("  loss "));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % static_cast<unsigned>(longest_ms[way])));
    ::kill(program.pid(), SIGKILL);
}

// Starts the training again and again, killing it after a random time, until it finishes.
void train_with_kills(const TemporaryDirectory& directory, std::mt19937_64& random, int wanted, const Arguments& more,
                      Kills& kills) {
    Reports reports;
    for (;;) {
        Program program(directory.path(), train_command(more));
        if (kills.all() < wanted) kill_at_random(program, random, kills.all(), reports);
        const Ended ended = program.wait();
        reports.check(ended);
        if (ended.code == 0) return;
        EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.errors;
        if (ended.code != 128 + SIGKILL) return;
        kills.count(ended.errors);
    }
}

struct Whole {
    Snapshot left;
    std::map<int, double> losses;
};

// What a training of these arguments leaves that is not killed.
const Whole& whole_of(const Arguments& arguments) {
    static std::map<Arguments, Whole> all;
    const auto [found, added] = all.try_emplace(arguments);
    if (added) {
        const TemporaryDirectory directory;
        write_toy(directory.path());
        EXPECT_EQ(run_command(directory.path(), train_command(arguments)).code, 0);
        found->second = {read_snapshot(directory / "swap", "penstock"), losses(directory)};
    }
    return found->second;
}

// What a training leaves that is killed `wanted` times and then finished is what one leaves that was never killed.
void expect_kills_change_nothing(int wanted, const Arguments& more, const Arguments& both = {}) {
    Arguments all = both;
    all.insert(all.end(), more.begin(), more.end());
    const std::uint64_t seed = first_seed();
    SCOPED_TRACE(replay(seed));
    std::mt19937_64 random(seed);

    const Whole& expected = whole_of(both);
    Kills kills;
    for (int trainings = 0; kills.all() < wanted && trainings < wanted; ++trainings) {
        const TemporaryDirectory killed;
        write_toy(killed.path());
        train_with_kills(killed, random, wanted, all, kills);
        const Snapshot left = read_snapshot(killed / "swap", "penstock");
        EXPECT_EQ(left.objects, expected.left.objects);
        EXPECT_EQ(left.client, expected.left.client);
        for (const auto& [step, loss] : losses(killed)) EXPECT_EQ(loss, expected.losses.at(step)) << "step " << step;
    }
    std::printf(
        "RESULT training kills: %d kills (%d while starting, %d creating, %d resuming, %d in steps); each went on from "
        "the step last reported or a later one; every byte and loss compared with a training that was never killed; "
        "%s\n",
        kills.all(), kills.starting, kills.creating, kills.resuming, kills.steps, replay(seed).c_str());
    EXPECT_GE(kills.all(), wanted * 5 / 6);
    EXPECT_GT(kills.starting, 0);
    EXPECT_GT(kills.steps, wanted / 4);
    if (wanted >= 200) {
        EXPECT_GT(kills.creating, 0);
        EXPECT_GT(kills.resuming, 0);
    }
}

// --runs are those of the plain training; each other one has a quarter of them.
int wanted_kills(int usual, std::uint64_t part = 4) {
    const std::optional<std::uint64_t> runs = seed_options().runs;
    return runs ? static_cast<int>(*runs / part) : usual;
}

TEST(Kill, ATrainingKilledAtRandomTimesEndsBitIdentical) {
    expect_kills_change_nothing(wanted_kills(12, 1), {});
}

TEST(Kill, SoDoesOneThatCommitsEveryThirdStepAndHoldsBackWhatHostMemoryHas) {
    expect_kills_change_nothing(
        wanted_kills(6), {"--set", "run.commit_every=3", "--set", "zero_optimization.offload_param.device=cpu", "--set",
                          "zero_optimization.offload_optimizer.device=cpu"});
}

TEST(Kill, SoDoesOneThatUpdatesWithinBackward) {
    expect_kills_change_nothing(wanted_kills(6), {"--set", "run.update_order=within"},
                                {"--set", "gradient_clipping=0"});
}

TEST(Kill, SoDoesOneThatUpdatesSomeStepsAgain) {
    expect_kills_change_nothing(wanted_kills(6), {"--set", "run.update_order=speculative"},
                                {"--set", "gradient_clipping=1.8"});
}

TEST(Kill, SoDoesOneThatUpdatesSomeUnitsWithinBackwardAndDefersTheOthers) {
    expect_kills_change_nothing(wanted_kills(6),
                                {"--set", "run.update_order=balanced", "--set", "run.deferred_share=0.5"},
                                {"--set", "gradient_clipping=0"});
}

TEST(Kill, SoDoesOneThatDoesSoAndClips) {
    expect_kills_change_nothing(wanted_kills(6),
                                {"--set", "run.update_order=balanced", "--set", "run.deferred_share=0.5"},
                                {"--set", "gradient_clipping=1.8"});
}

TEST(Kill, SoDoesOneWhoseUnitsStayInHostMemoryWhereThereIsRoom) {
    expect_kills_change_nothing(wanted_kills(6), {"--set", "memory.fill_host_budget=true", "--set",
                                                  "run.commit_every=2", "--set", "run.update_order=deferred"});
}

TEST(Kill, SoDoesOneWhoseGradientsLeaveHostMemory) {
    expect_kills_change_nothing(wanted_kills(6),
                                {"--set", "memory.gradients=nvme", "--set", "run.update_order=deferred"});
}

// Half of the inputs of units, and all gradients.
TEST(Kill, SoDoesOneWhoseActivationsLeaveHostMemoryToo) {
    expect_kills_change_nothing(
        wanted_kills(6), {"--set", "memory.activations=recompute", "--set", "memory.activation_budget=8KiB", "--set",
                          "memory.gradients=nvme", "--set", "run.update_order=deferred"});
}

TEST(Kill, SoDoesOneWhoseUpdatesAreDeferred) {
    expect_kills_change_nothing(wanted_kills(12), {"--set", "run.update_order=deferred"});
}

}  // namespace
}  // namespace penstock::testing
