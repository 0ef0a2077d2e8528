// Snapshots as a user has them: kept while a training goes on, and gone back to.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <set>

namespace penstock::testing {
namespace {

using nlohmann::json;

class Keeping : public ::testing::Test {
   protected:
    Keeping() { write_toy(directory_.path()); }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json", "--json"});
        return run(directory_.path(), more);
    }
    std::vector<json> log() { return read_json_lines(directory_ / "run/log.jsonl"); }
    std::vector<double> losses() {
        std::vector<double> losses;
        for (const json& step : log()) losses.push_back(step["loss"]);
        return losses;
    }
    std::set<std::string> kept(const std::string& folder = "swap/kept") {
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(directory_ / folder))
            names.insert(entry.path().filename());
        return names;
    }
    static bool says(const Ended& ended, const std::string& part) {
        return ended.errors.find(part) != std::string::npos;
    }

    TemporaryDirectory directory_;
};

TEST_F(Keeping, KeepsAsOftenAsItWasToldAndAsManyAsItWasTold) {
    // Each run ends its copy before it ends.
    for (const char* steps : {"2", "3", "4", "6"}) {
        const Ended ended = train({"--steps", steps, "--set", "keep.every=2", "--set", "keep.last=2"});
        ASSERT_EQ(ended.code, 0) << ended.errors;
        EXPECT_EQ(says(ended, std::string("kept swap/kept/step-") + steps), std::string(steps) != "3") << ended.errors;
        EXPECT_EQ(says(ended, "removed swap/kept/step-2: keep.last is 2"), std::string(steps) == "6") << ended.errors;
    }
    EXPECT_EQ(kept(), (std::set<std::string>{"step-4", "step-6"}));
}

TEST_F(Keeping, GoesBackByStepNameAndPathAndComesToTheSameLosses) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    ASSERT_EQ(once.size(), 6U);
    for (const std::string name : {"3", "step-3", "swap/kept/step-3"}) {
        const Ended again = train({"--resume-from", name, "--go-back"});
        ASSERT_EQ(again.code, 0) << again.errors;
        EXPECT_EQ(json::parse(again.output)["resumed_from_step"], 3) << name;
        EXPECT_EQ(json::parse(again.output)["steps_run"], 3) << name;
        EXPECT_EQ(losses(), once) << name;
    }
}

// As exit code 75 tells people to: the same command again.
TEST_F(Keeping, GoingBackIsDoneOnceByTheSameCommand) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    const auto resumed_from = [&](const std::vector<std::string>& more) {
        const Ended ended = train(more);
        EXPECT_EQ(ended.code, 0) << ended.errors;
        return json::parse(ended.output)["resumed_from_step"].get<int>();
    };
    EXPECT_EQ(resumed_from({"--resume-from", "3", "--steps", "5"}), 3);
    EXPECT_EQ(resumed_from({"--resume-from", "3", "--steps", "6"}), 5) << "it has gone on since";
    EXPECT_EQ(resumed_from({"--resume-from", "3"}), 6);
    EXPECT_EQ(resumed_from({}), 6);
    EXPECT_EQ(resumed_from({"--resume-from", "3", "--go-back"}), 3);
    EXPECT_EQ(losses(), once);
}

// A store from a backup: the run's own log knows better.
TEST_F(Keeping, AStoreThatIsOlderThanTheLogIsNotGoneOnWithUnasked) {
    ASSERT_EQ(train({"--steps", "3"}).code, 0);
    std::filesystem::copy(directory_ / "swap", directory_ / "backup", std::filesystem::copy_options::recursive);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    std::filesystem::remove_all(directory_ / "swap");
    std::filesystem::rename(directory_ / "backup", directory_ / "swap");
    const Ended refused = train();
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(says(refused, "run/log.jsonl reports step 6 as committed, and the newest in swap is step 3"))
        << refused.errors;
    EXPECT_EQ(losses(), once) << "nothing was changed";
    const Ended back = train({"--go-back"});
    EXPECT_EQ(back.code, 0) << back.errors;
    EXPECT_TRUE(says(back, "warning: run/log.jsonl reports step 6")) << back.errors;
    EXPECT_EQ(json::parse(back.output)["resumed_from_step"], 3);
    EXPECT_EQ(losses(), once);
}

// One commit that was lost with a manifest is computed again, and said.
TEST_F(Keeping, ALostManifestIsSaidWithWhatTheLogKnows) {
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    // Generation 0 is the first weights, 6 the last step.
    const std::string newest = directory_ / "swap/manifest.0";
    std::filesystem::resize_file(newest, 0);
    const Ended again = train();
    EXPECT_EQ(again.code, 0) << again.errors;
    EXPECT_TRUE(says(again, "reports step 6 as committed, and the newest in swap is step 5")) << again.errors;
    EXPECT_EQ(losses(), once);
}

TEST_F(Keeping, NothingIsBegunOverAStoreWhoseManifestsWereEmptied) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    for (const char* name : {"swap/manifest.0", "swap/manifest.1"}) std::filesystem::resize_file(directory_ / name, 0);
    const Ended refused = train();
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(says(refused, "reports step 6 as committed, and nothing is committed in swap any more"))
        << refused.errors;
    EXPECT_EQ(losses(), once);
    EXPECT_EQ(json::parse(train({"--resume-from", "3"}).output)["resumed_from_step"], 3);
    EXPECT_EQ(losses(), once);
}

// A snapshot is gone back to where only it can help: no tile of the store counts.
TEST_F(Keeping, ASnapshotReplacesAStoreThatIsDamagedAndDoubtful) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    std::filesystem::resize_file(directory_ / "swap/manifest.0", 0);  // of generation 6
    const auto bytes = std::filesystem::file_size(directory_ / "swap/data");
    write_file(directory_ / "swap/data", std::string(bytes, 'x'));
    EXPECT_EQ(train().code, 4);
    const Ended back = train({"--resume-from", "3"});
    EXPECT_EQ(back.code, 0) << back.errors;
    EXPECT_EQ(losses(), once);
}

TEST_F(Keeping, ACopyThatAKillLeftUnfinishedIsRemovedByTheNextStart) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    // What a kill leaves: the lock of the job, and manifests that were never written to.
    const std::filesystem::path left = directory_ / "swap/kept/step-2";
    std::filesystem::create_directory(left);
    std::filesystem::copy(directory_ / "swap/kept/step-3/lock", left / "lock");
    for (const char* name : {"manifest.0", "manifest.1", "data"}) write_file(left / name, "");
    // Or, in the instant before, an empty directory. Other names are somebody's.
    for (const char* name : {"step-1", "best"}) std::filesystem::create_directory((directory_ / "swap/kept/") + name);
    const Ended again = train({"--set", "keep.every=100"});
    EXPECT_EQ(again.code, 0) << again.errors;
    EXPECT_TRUE(says(again, "removed swap/kept/step-2, whose copy was interrupted")) << again.errors;
    EXPECT_EQ(kept(), (std::set<std::string>{"best", "step-3"}));
}

TEST_F(Keeping, AMovedSnapshotStartsAnEmptyRun) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3", "--set", "keep.folder=elsewhere/kept"}).code, 0);
    ASSERT_EQ(train().code, 0);
    const std::vector<double> once = losses();
    std::filesystem::rename(directory_ / "elsewhere/kept/step-3", directory_ / "moved");
    std::filesystem::remove_all(directory_ / "swap");
    const Ended again = train({"--resume-from", "./moved"});
    ASSERT_EQ(again.code, 0) << again.errors;
    EXPECT_EQ(json::parse(again.output)["resumed_from_step"], 3);
    EXPECT_EQ(losses(), once);
}

TEST_F(Keeping, GoingBackObeysTheRulesOfAResume) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    const Ended changed = train({"--resume-from", "3", "--set", "optimizer.params.lr=0.5"});
    EXPECT_EQ(changed.code, 2);
    EXPECT_TRUE(says(changed, "optimizer.params.lr")) << changed.errors;
    const Ended unknown = train({"--resume-from", "4"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_TRUE(says(unknown, "--resume-from 4: swap/kept has no snapshot '4'; there are: step-3")) << unknown.errors;
    EXPECT_EQ(json::parse(train().output)["resumed_from_step"], 3) << "the store is as it was";
}

// `ckpt verify swap 3` finds it: then so does a training.
TEST_F(Keeping, GoesBackToAStepWhateverItsSnapshotIsCalled) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    std::filesystem::rename(directory_ / "swap/kept/step-3", directory_ / "swap/kept/best");
    ASSERT_EQ(train().code, 0);
    EXPECT_EQ(run(directory_.path(), {"ckpt", "verify", "swap", "3"}).code, 0);
    const Ended again = train({"--resume-from", "3"});
    EXPECT_EQ(again.code, 0) << again.errors;
    EXPECT_EQ(json::parse(again.output)["resumed_from_step"], 3);
}

TEST_F(Keeping, NoSnapshotAndTheRunsOwnStoreAreRefusedByName) {
    ASSERT_EQ(train({"--steps", "3"}).code, 0);
    const Ended empty = train({"--resume-from", ""});
    EXPECT_EQ(empty.code, 2);
    EXPECT_TRUE(says(empty, "--resume-from: the value is empty")) << empty.errors;
    for (const std::string& own : std::vector<std::string>{"./swap", directory_ / "swap"}) {
        const Ended ended = train({"--resume-from", own});
        EXPECT_EQ(ended.code, 2);
        EXPECT_TRUE(says(ended, "--resume-from " + own + ": it is the run's own store")) << ended.errors;
    }
    EXPECT_EQ(run(directory_.path(), {"ckpt", "verify", "swap", ""}).code, 2);
    EXPECT_EQ(json::parse(train().output)["resumed_from_step"], 3) << "the store is as it was";
}

TEST_F(Keeping, ASnapshotIsNoStoreToTrainIn) {
    ASSERT_EQ(train({"--steps", "3", "--set", "keep.every=3"}).code, 0);
    const Ended ended = train({"--set", "zero_optimization.offload_param.nvme_path=swap/kept/step-3"});
    EXPECT_EQ(ended.code, 2);
    EXPECT_TRUE(says(ended, "swap/kept/step-3 is a kept snapshot, which is only read")) << ended.errors;
    EXPECT_EQ(train({"--resume-from", "3"}).code, 0) << "the snapshot is as it was";
}

TEST_F(Keeping, ASignalKeepsTheStepThatRuns) {
    Program program(directory_.path(), penstock({"train", "config.json", "--json", "--steps", "100000", "--set",
                                                 "keep.folder=snapshots", "--set", "run.commit_every=100000"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGUSR1);
    ASSERT_TRUE(program.says("kept snapshots/step-"));
    ::kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait().code, 75);
    ASSERT_EQ(kept("snapshots").size(), 1U);
    const Ended back =
        train({"--steps", "1", "--set", "keep.folder=snapshots", "--resume-from", *kept("snapshots").begin()});
    EXPECT_EQ(back.code, 0) << back.errors;
    EXPECT_EQ("step-" + std::to_string(json::parse(back.output)["resumed_from_step"].get<int>()),
              *kept("snapshots").begin());
}

TEST_F(Keeping, ASignalWithoutAPlanSaysWhyNothingIsKept) {
    Program program(directory_.path(), penstock({"train", "config.json", "--steps", "100000"}));
    ASSERT_TRUE(program.says("step 2/100000"));
    ::kill(program.pid(), SIGUSR1);
    EXPECT_TRUE(program.says("no memory was planned for it: give keep.every or keep.folder"));
    ::kill(program.pid(), SIGTERM);
    EXPECT_EQ(program.wait().code, 75);
}

TEST_F(Keeping, AFolderThatCannotBeMadeIsAWarningAndTheRunGoesOn) {
    write_file(directory_ / "file", "not a folder");
    const Ended ended = train({"--set", "keep.every=2", "--set", "keep.folder=file/kept"});
    EXPECT_EQ(ended.code, 0) << ended.errors;
    EXPECT_TRUE(says(ended, "warning: file/kept/step-2 is no snapshot: ")) << ended.errors;
    EXPECT_EQ(log().size(), 6U);
}

TEST_F(Keeping, AStepThatWasKeptBeforeIsLeft) {
    ASSERT_EQ(train({"--set", "keep.every=3"}).code, 0);
    const Ended again = train({"--resume-from", "3", "--set", "keep.every=6"});
    EXPECT_EQ(again.code, 0) << again.errors;
    EXPECT_TRUE(says(again, "swap/kept/step-6 was kept before and is left as it is")) << again.errors;
}

TEST_F(Keeping, KeysThatSayNothingTogetherAreRefused) {
    const Ended last = train({"--set", "keep.last=2"});
    EXPECT_EQ(last.code, 2);
    EXPECT_TRUE(says(last, "keep.last has no effect")) << last.errors;
    const Ended scratch = train({"--set", "keep.every=2", "--set", "run.commit_every=scratch"});
    EXPECT_EQ(scratch.code, 2);
    EXPECT_TRUE(says(scratch, "need commits")) << scratch.errors;
}

TEST_F(Keeping, SeveralSwapDirectoriesGiveTheSameLosses) {
    ASSERT_EQ(train({"--steps", "4"}).code, 0);
    const std::vector<double> single = losses();
    // One store is named twice in the file: the list goes in its place.
    std::string config = read_file(directory_ / "config.json");
    const std::string path = ", \"nvme_path\": \"swap\"";
    config.erase(config.find(path), path.size());
    write_file(directory_ / "config.json", config);
    std::filesystem::remove_all(directory_ / "run");
    const std::string list =
        R"(run.swap_directory=[{"path":"fast","bandwidth":"3GiB"},{"path":"slow","bandwidth":"1GiB"}])";
    const Ended first = train({"--steps", "2", "--set", list});
    ASSERT_EQ(first.code, 0) << first.errors;
    EXPECT_TRUE(says(first, "a new store's tiles go to the swap directories as 3 : 1")) << first.errors;
    const Ended second = train({"--steps", "4", "--set", R"(run.swap_directory=["fast","slow"])"});
    ASSERT_EQ(second.code, 0) << second.errors;
    EXPECT_EQ(json::parse(second.output)["resumed_from_step"], 2);
    EXPECT_EQ(losses(), single);
    EXPECT_GT(std::filesystem::file_size(directory_ / "fast/data"),
              std::filesystem::file_size(directory_ / "slow/data"));
}

}  // namespace
}  // namespace penstock::testing
