// A run whose store, or a part of it, or what says whose it is, is not where it was.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <csignal>
#include <filesystem>
#include <functional>
#include <set>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool says(const Ended& ended, const std::string& part) {
    return ended.errors.find(part) != std::string::npos;
}

// Six steps with kept snapshots of the third and the sixth, in a folder of their own.
class LostStore : public ::testing::Test {
   protected:
    LostStore() {
        write_toy(directory_.path());
        EXPECT_EQ(train({"--set", "keep.every=3"}).code, 0);
        once_ = losses();
    }

    Ended train(std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"train", "config.json", "--json", "--set", "keep.folder=kept"});
        return run(directory_.path(), more);
    }
    std::vector<double> losses() {
        std::vector<double> losses;
        for (const json& step : read_json_lines(directory_ / "run/log.jsonl")) losses.push_back(step["loss"]);
        return losses;
    }
    std::string path(const std::string& name) const { return directory_ / name; }
    std::set<std::string> files() const {
        std::set<std::string> names;
        for (const auto& entry : fs::recursive_directory_iterator(directory_.path()))
            if (entry.path().filename().string().front() != '.') names.insert(entry.path());
        return names;
    }
    // Refuses, as storage does, and leaves all as it was.
    void expect_refused(const std::vector<std::string>& more, const std::string& words) {
        const std::set<std::string> before = files();
        const Ended ended = train(more);
        EXPECT_EQ(ended.code, 4) << ended.errors;
        EXPECT_TRUE(says(ended, words)) << ended.errors;
        EXPECT_EQ(files(), before);
        EXPECT_EQ(losses(), once_);
    }
    void expect_resumed(const std::vector<std::string>& more, int step) {
        const Ended ended = train(more);
        ASSERT_EQ(ended.code, 0) << ended.errors;
        EXPECT_EQ(json::parse(ended.output)["resumed_from_step"], step);
        EXPECT_EQ(losses(), once_);
    }

    TemporaryDirectory directory_;
    std::vector<double> once_;
};

TEST_F(LostStore, IsRefusedWhateverIsLeftOfALockInItsPlace) {
    const std::string lock = read_file(path("swap/lock"));
    fs::remove_all(path("swap"));
    expect_refused({}, "reports step 6 as committed, and there is no store in swap");
    fs::create_directory(path("swap"));
    expect_refused({}, "there is no store in swap");
    for (const std::string& left : {std::string(), std::string(1024, '\0'), lock.substr(0, 20), lock.substr(0, 300),
                                    lock.substr(0, 300) + std::string(724, '\0'), lock}) {
        SCOPED_TRACE(left.size());
        write_file(path("swap/lock"), left);
        expect_refused({}, "there is no store in swap");
        EXPECT_EQ(read_file(path("swap/lock")), left);
    }
    expect_resumed({"--resume-from", "3"}, 3);
}

TEST_F(LostStore, IsRefusedAfterAResumeFromThatWasRefused) {
    fs::remove_all(path("swap"));
    const std::set<std::string> before = files();
    const Ended refused = train({"--resume-from", "3", "--set", "optimizer.params.lr=0.5"});
    EXPECT_EQ(refused.code, 2) << refused.errors;
    EXPECT_EQ(files(), before);
    expect_refused({}, "there is no store in swap");
}

// At any moment before its first commit: the lock alone, files without a commit.
TEST_F(LostStore, IsRefusedAfterAResumeFromThatWasKilled) {
    for (const char* seen : {"swap/lock", "swap/manifest.0", "swap/data"}) {
        fs::remove_all(path("swap"));
        {
            Program program(directory_.path(),
                            penstock({"train", "config.json", "--resume-from", path("kept/step-3")}));
            while (!fs::exists(path(seen))) ::usleep(50);
        }
        if (fs::exists(path("swap/manifest.0")) && run(directory_.path(), {"ckpt", "show", "swap"}).code == 0)
            continue;  // it was too fast
        const Ended ended = train();
        EXPECT_EQ(ended.code, 4) << seen << ended.errors;
        EXPECT_TRUE(says(ended, "there is no store in swap")) << ended.errors;
        EXPECT_EQ(losses(), once_);
    }
    fs::remove_all(path("swap"));
    // What a kill leaves for certain.
    fs::create_directory(path("swap"));
    fs::copy(path("kept/step-3/lock"), path("swap/lock"));
    for (const char* name : {"swap/manifest.0", "swap/manifest.1", "swap/data"}) write_file(path(name), "");
    expect_refused({}, "there is no store in swap, but one that was begun and never committed");
    expect_resumed({"--resume-from", "3"}, 3);
}

TEST_F(LostStore, IsKnownByTheLogOrByStoreJson) {
    fs::remove_all(path("swap"));
    const std::string owner = read_file(path("run/store.json"));
    for (const char* damaged : {"", "{\"store\":\"\"}", "garbage"}) {
        write_file(path("run/store.json"), damaged);
        expect_refused({}, "give this run another run.directory");
    }
    fs::remove(path("run/store.json"));
    expect_refused({}, "reports step 6 as committed, and there is no store in swap");
    write_file(path("run/store.json"), owner);
    const std::string log = read_file(path("run/log.jsonl"));
    once_.clear();
    fs::remove(path("run/log.jsonl"));
    expect_refused({}, "run.directory run is that of store ");
    write_file(path("run/log.jsonl"), log);
    const Ended anew = train({"--go-back"});
    EXPECT_EQ(anew.code, 0) << anew.errors;
    EXPECT_TRUE(says(anew, "run/log.jsonl was of another run; it is run/log.1.jsonl now")) << anew.errors;
    EXPECT_EQ(read_file(path("run/log.1.jsonl")), log);
}

TEST_F(LostStore, AnOlderCopyIsKnownByTheLogWhateverBecameOfStoreJson) {
    ASSERT_EQ(train({"--resume-from", "3", "--go-back", "--steps", "4"}).code, 0);
    fs::copy(path("swap"), path("older"));
    ASSERT_EQ(train().code, 0);
    fs::remove_all(path("swap"));
    fs::rename(path("older"), path("swap"));
    const std::string owner = read_file(path("run/store.json"));
    std::string other_store = owner;
    char& digit = other_store[other_store.find(':') + 2];
    digit = digit == '0' ? '1' : '0';
    fs::remove(path("run/store.json"));
    expect_refused({}, "reports step 6 as committed, and the newest in swap is step 4");
    for (const std::string& damaged : {std::string(), std::string("{}"), owner.substr(0, 20), other_store, owner}) {
        write_file(path("run/store.json"), damaged);
        expect_refused({}, "reports step 6 as committed, and the newest in swap is step 4");
        EXPECT_EQ(read_file(path("run/store.json")), damaged);
    }
    fs::remove(path("run/store.json"));
    expect_resumed({"--go-back"}, 4);
}

// Of the same steps, so that only what they say tells.
TEST_F(LostStore, ALogOfAnotherRunIsPutAside) {
    const std::vector<std::string> other = {"--set", "run.directory=run2",
                                            "--set", "zero_optimization.offload_param.nvme_path=swap2",
                                            "--set", "run.seed=7"};
    ASSERT_EQ(train(other).code, 0);
    const std::string own = read_file(path("run/log.jsonl"));
    const std::string others = read_file(path("run2/log.jsonl"));
    for (const bool known : {true, false}) {
        write_file(path("run/log.jsonl"), others);
        if (!known) fs::remove(path("run/store.json"));
        const Ended ended = train({"--steps", "7"});
        ASSERT_EQ(ended.code, 0) << ended.errors;
        const std::string aside = fmt::format("run/log.{}.jsonl", known ? 1 : 2);
        EXPECT_TRUE(says(ended, "run/log.jsonl was of another run; it is " + aside + " now")) << ended.errors;
        EXPECT_EQ(read_file(path(aside)), others);
        ASSERT_EQ(train({"--resume-from", "6", "--go-back"}).code, 0);
    }
    // A longer one would have cost its last lines, too.
    ASSERT_EQ(train({"--set", "run.directory=run2", "--set", "zero_optimization.offload_param.nvme_path=swap2", "--set",
                     "run.seed=7", "--steps", "9"})
                  .code,
              0);
    fs::copy(path("run2/log.jsonl"), path("run/log.jsonl"), fs::copy_options::overwrite_existing);
    fs::remove(path("run/store.json"));
    const Ended refused = train();
    EXPECT_EQ(refused.code, 4);
    EXPECT_TRUE(says(refused, "If the log is another run's, give this run another run.directory")) << refused.errors;
    const Ended back = train({"--go-back"});
    EXPECT_EQ(back.code, 0) << back.errors;
    EXPECT_EQ(read_json_lines(path("run/log.3.jsonl")).size(), 9U) << back.errors;
}

TEST_F(LostStore, RefusalsLeaveNothingBehind) {
    fs::remove_all(path("swap"));
    fs::remove_all(path("run"));
    const std::set<std::string> before = files();
    const std::pair<int, std::vector<std::string>> refusals[] = {
        {2, {"--resume-from", "3", "--set", "model.hidden=64"}},
        {2, {"--resume-from", "kept/nothing"}},
        {2, {"--resume-from", "3", "--set", "run.directory=deep/in/run", "--set", "optimizer.params.lr=0.5"}},
        {3, {"--set", "memory.host_budget=1MiB", "--set", "model.hidden=1024"}},
        {4, {"--set", "zero_optimization.offload_param.nvme_path=missing/swap"}},
        {2, {"--set", "data.train=missing"}},
    };
    for (const auto& [code, more] : refusals) {
        const Ended ended = train(more);
        EXPECT_EQ(ended.code, code) << more.back() << ended.errors;
        EXPECT_EQ(files(), before) << more.back();
    }
}

TEST_F(LostStore, ARefusalNamesTheReaderThatHoldsTheStore) {
    Program reader(directory_.path(), {"/usr/bin/flock", "--shared", "swap/lock", "/usr/bin/sleep", "60"});
    const std::string pid = std::to_string(reader.pid());
    for (int tries = 0; tries < 2000; ++tries) {
        const std::string listed = run(directory_.path(), {"ckpt", "ls", "swap"}).output;
        if (listed.find("in use by process " + pid) != std::string::npos) break;
    }
    const Ended ended = train();
    EXPECT_EQ(ended.code, 4);
    EXPECT_TRUE(says(ended, "in use by process " + pid + " ('flock'), which reads it")) << ended.errors;
    EXPECT_FALSE(says(ended, " since ")) << ended.errors;
}

// ---------------------------------------------------------------- of several directories

class LostDirectory : public LostStore {
   protected:
    LostDirectory() {
        std::string config = read_file(path("config.json"));
        const std::string one = ", \"nvme_path\": \"swap\"";
        config.erase(config.find(one), one.size());
        config.replace(config.find("\"run\": {"), 8, R"("run": {"swap_directory": ["swap0", "swap1"], )");
        write_file(path("config.json"), config);
        for (const char* name : {"swap", "run", "kept"}) fs::remove_all(path(name));
        EXPECT_EQ(train({"--set", "keep.every=3"}).code, 0);
        once_ = losses();
    }
};

TEST_F(LostDirectory, TheFirstIsMadeAnewByTheSnapshotThatIsNamed) {
    for (const char* left : {"nothing", "directory", "lock"}) {
        fs::remove_all(path("swap0"));
        if (left[0] != 'n') fs::create_directory(path("swap0"));
        if (left[0] == 'l') write_file(path("swap0/lock"), std::string(1024, '\0'));
        expect_refused({}, "--resume-from goes back to a kept snapshot ('penstock ckpt ls kept' lists them)");
        expect_resumed({"--resume-from", "3"}, 3);
    }
}

TEST_F(LostDirectory, TheFirstIsMadeAnewByBeginningAnew) {
    fs::remove_all(path("swap0"));
    expect_refused({}, "--go-back begins anew");
    const Ended anew = train({"--go-back"});
    EXPECT_EQ(anew.code, 0) << anew.errors;
    EXPECT_EQ(losses(), once_);
    EXPECT_TRUE(fs::exists(path("run/log.1.jsonl")));
    EXPECT_EQ(run(directory_.path(), {"ckpt", "verify", "swap0", "--also", "swap1"}).code, 0);
}

TEST_F(LostDirectory, AKillWhileTheFirstIsMadeAnewCostsNothing) {
    fs::remove_all(path("swap0"));
    {
        Program program(directory_.path(), penstock({"train", "config.json", "--resume-from", path("kept/step-3")}));
        while (!fs::exists(path("swap0/lock"))) ::usleep(50);
    }
    expect_resumed({"--resume-from", "3", "--go-back"}, 3);
}

TEST_F(LostDirectory, TheSecondIsMadeAnewByTheSnapshotThatIsNamed) {
    for (const char* lost : {"swap1", "swap1/data", "swap0/data"}) {
        fs::remove_all(path(lost));
        expect_refused({}, "--resume-from goes back to a kept snapshot ('penstock ckpt ls swap0 --kept kept'");
        expect_resumed({"--resume-from", "3", "--go-back"}, 3);
    }
}

// Another run's directory, given by mistake, is not written over: this run's store was never in it.
TEST_F(LostDirectory, ADirectoryOfAnotherRunIsNeverMadeOver) {
    const auto fork = [&](const std::string& more) {
        return train({"--set", "run.directory=fork", "--set", R"(run.swap_directory=["fork0","swap1"])",
                      "--resume-from", "3", more});
    };
    for (const char* more : {"--go-back", "--json"}) {
        const Ended ended = fork(more);
        EXPECT_EQ(ended.code, 4) << ended.errors;
        EXPECT_TRUE(says(ended, "swap1 holds a store already (device 1 of 2 of store")) << ended.errors;
        EXPECT_FALSE(fs::exists(path("fork0")));
        EXPECT_FALSE(fs::exists(path("fork")));
    }
    expect_resumed({}, 6);
}

TEST_F(LostDirectory, ALockOfAnotherStoreIsMadeAnewByTheScrubThatIsNamed) {
    ASSERT_EQ(train({"--set", "run.directory=run2", "--set", R"(run.swap_directory=["b0","b1"])"}).code, 0);
    for (const char* name : {"0/lock", "1/lock"}) {
        fs::copy_file(path("b" + std::string(name)), path("swap" + std::string(name)),
                      fs::copy_options::overwrite_existing);
        expect_refused({}, "'penstock ckpt scrub swap0 --also swap1 --kept kept' makes it anew");
        const Ended scrubbed = run(directory_.path(), {"ckpt", "scrub", "swap0", "--also", "swap1", "--kept", "kept"});
        EXPECT_EQ(scrubbed.code, 0) << scrubbed.errors << scrubbed.output;
        expect_resumed({}, 6);
    }
}

}  // namespace
}  // namespace penstock::testing
