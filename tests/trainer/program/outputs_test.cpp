// No output of `penstock train` falls on what the run reads or has: refused before a file is made, whatever the
// spelling.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

class Outputs : public ::testing::Test {
   protected:
    Outputs() {
        write_toy(directory_.path());
        config_ = read_file(directory_ / "config.json");
        tokens_ = read_file(directory_ / "text.tokens");
    }
    Ended train(std::vector<std::string> more) {
        more.insert(more.begin(), {"train", "config.json"});
        return run(directory_.path(), more);
    }
    std::set<std::string> files() const {
        std::set<std::string> names;
        for (const auto& entry : fs::recursive_directory_iterator(directory_.path()))
            if (!entry.path().filename().string().starts_with(".std")) names.insert(entry.path().string());
        return names;
    }
    // With exit code 2 and these words, and nothing was made or changed.
    void expect_refused(const std::vector<std::string>& arguments, const std::string& words) {
        const std::set<std::string> before = files();
        const Ended ended = train(arguments);
        EXPECT_EQ(ended.code, 2) << arguments.back() << ": " << ended.errors;
        EXPECT_NE(ended.errors.find("penstock: error: "), std::string::npos) << ended.errors;
        EXPECT_NE(ended.errors.find(words), std::string::npos) << words << " in " << ended.errors;
        EXPECT_EQ(files(), before);
        EXPECT_EQ(read_file(directory_ / "config.json"), config_);
        EXPECT_EQ(read_file(directory_ / "text.tokens"), tokens_);
    }

    TemporaryDirectory directory_;
    std::string config_, tokens_;
};

TEST_F(Outputs, ATraceIsNotTheConfigurationNorTheData) {
    fs::create_symlink("config.json", directory_ / "link.json");
    fs::create_hard_link(directory_ / "text.tokens", directory_ / "hard.tokens");
    fs::create_directory_symlink(".", directory_ / "here");
    for (const std::string path :
         {"config.json", "./config.json", "here/config.json", "link.json", "run/../config.json"})
        expect_refused({"--trace", path}, "is the configuration, config.json");
    for (const std::string path : {"text.tokens", "here/here/text.tokens", "hard.tokens"})
        expect_refused({"--trace", path}, "is the data (data.train), text.tokens");
}

TEST_F(Outputs, NorIsWhatATraceIsWrittenToFirst) {
    fs::rename(directory_ / "text.tokens", directory_ / "step.json.partial");
    tokens_.clear();
    const std::string data = read_file(directory_ / "step.json.partial");
    expect_refused({"--set", "data.train=step.json.partial", "--trace", "step.json"},
                   "step.json.partial, which is written first, is the data");
    EXPECT_EQ(read_file(directory_ / "step.json.partial"), data);
    fs::create_symlink("config.json", directory_ / "other.json.partial");
    expect_refused({"--set", "data.train=step.json.partial", "--trace", "other.json"}, "is the configuration");
}

TEST_F(Outputs, ATraceIsNoFileOfTheRunNorInAStore) {
    for (const bool there : {false, true}) {
        if (there) {
            ASSERT_EQ(train({"--steps", "2", "--set", "keep.every=1"}).code, 0);
        }
        for (const std::string name : {"log.jsonl", "summary.json", "store.json", "summary.json.tmp", "log.1.jsonl"})
            expect_refused({"--trace", "run/" + name}, "--trace run/" + name);
        for (const std::string name : {"data", "lock", "manifest.0", "step.json", "kept/step.json", "kept/step-2/data"})
            expect_refused({"--trace", "swap/" + name}, "store's directory");
    }
    fs::create_symlink("run/log.jsonl", directory_ / "link.json");
    expect_refused({"--trace", "link.json"}, "is the run's log.jsonl");
    expect_refused({"--trace", "penstock-profile.json"}, "profile of a device");
    EXPECT_EQ(train({"--trace", "run/step.json"}).code, 0);
    EXPECT_TRUE(fs::exists(directory_ / "run/step.json"));
}

// Of another run, or a snapshot of one.
TEST_F(Outputs, NoOutputIsInAnothersStore) {
    ASSERT_EQ(train({"--steps", "2", "--set", "keep.folder=other", "--set", "keep.every=2"}).code, 0);
    fs::rename(directory_ / "swap", directory_ / "theirs");
    expect_refused({"--trace", "theirs/step.json"}, "store's directory");
    expect_refused({"--trace", "other/step-2/step.json"}, "store's directory");
    expect_refused({"--set", "run.directory=theirs"}, "is the store's directory");
    expect_refused({"--set", "run.directory=theirs/run"}, "is in the store's directory");
    expect_refused({"--set", "run.directory=other/step-2/a/b"}, "is in the store's directory");
}

TEST_F(Outputs, RunDirectoryIsOutsideOfTheStoreHoweverItIsSpelled) {
    for (const bool there : {false, true}) {
        if (there) {
            fs::create_directory(directory_ / "swap");
            fs::create_directory_symlink("swap", directory_ / "link");
        }
        for (const std::string& path : {std::string("swap"), std::string("swap/"), std::string("./swap"),
                                        std::string("run/../swap"), directory_ / "swap"})
            expect_refused({"--set", "run.directory=" + path}, "is the store's directory swap");
        for (const std::string& path : {std::string("swap/run"), std::string("swap/kept/run"),
                                        std::string("swap/../swap/run"), directory_ / "swap/x/y"})
            expect_refused({"--set", "run.directory=" + path}, "is in the store's directory swap");
    }
    expect_refused({"--set", "run.directory=link"}, "run.directory link is the store's directory swap");
    expect_refused({"--set", "run.directory=link/run"}, "run.directory link/run is in the store's directory swap");
    const std::string second = "zero_optimization.offload_param.nvme_path=first";
    expect_refused({"--set", second, "--set", "run.swap_directory=first", "--set", "run.directory=first/run"},
                   "is in the store's directory first");
}

TEST_F(Outputs, TheStoreMayBeInRunDirectory) {
    fs::create_directory(directory_ / "run2");
    const std::vector<std::string> within{
        "--steps", "2", "--set", "zero_optimization.offload_param.nvme_path=run2/swap", "--set", "run.directory=run2"};
    const Ended ended = train(within);
    EXPECT_EQ(ended.code, 0) << ended.errors;
}

// The log would cut the data, the summary replace the configuration.
TEST_F(Outputs, TheFilesOfARunAreNotTheConfigurationNorTheData) {
    fs::create_directory(directory_ / "run");
    for (const std::string name : {"log.jsonl", "summary.json", "store.json", "summary.json.tmp"}) {
        SCOPED_TRACE(name);
        const std::string path = directory_ / ("run/" + name);
        fs::create_hard_link(directory_ / "text.tokens", path);
        expect_refused({}, "the run's " + name + " would be written over the data");
        fs::remove(path);
        fs::create_symlink("../config.json", path);
        expect_refused({}, "the run's " + name + " would be written over the configuration");
        fs::remove(path);
        expect_refused({"--set", "zero_optimization.offload_param.nvme_path=run/" + name}, "where the run's " + name);
    }
    write_file(directory_ / "run/summary.json", config_);
    const Ended ended = run(directory_.path(), {"train", "run/summary.json"});
    EXPECT_EQ(ended.code, 2) << ended.errors;
    EXPECT_EQ(read_file(directory_ / "run/summary.json"), config_);
}

TEST_F(Outputs, TwoSpellingsOfOneSwapDirectoryAreRefused) {
    fs::create_directory(directory_ / "a");
    fs::create_directory_symlink("a", directory_ / "b");
    const auto expect_twice = [&](const std::string& list) {
        std::string config = config_;
        config.replace(config.find(", \"nvme_path\": \"swap\""), 21, "");
        write_file(directory_ / "two.json", config);
        const std::set<std::string> before = files();
        const Ended ended = run(directory_.path(), {"train", "two.json", "--set", "run.swap_directory=" + list});
        EXPECT_EQ(ended.code, 2) << ended.errors;
        EXPECT_NE(ended.errors.find("twice"), std::string::npos) << ended.errors;
        EXPECT_EQ(files(), before);
    };
    for (const std::string list :
         {R"(["a", "b"])", R"(["a", "a/"])", R"(["a", "./a"])", R"(["new", "a/../new"])", R"(["x", "b", "a/."])"})
        expect_twice(list);
}

// It is meant for token files.
TEST_F(Outputs, PrepareWithForceReplacesTokenFilesAlone) {
    for (const std::string path : {"config.json", "swap/data", "run/log.jsonl"}) {
        if (path == "swap/data") {
            ASSERT_EQ(train({"--steps", "2"}).code, 0);
        }
        const std::string before = read_file(directory_ / path);
        const Ended ended = run(directory_.path(), {"prepare", "--force", "--out", path, "text.txt"});
        EXPECT_EQ(ended.code, 2) << ended.errors;
        EXPECT_NE(ended.errors.find("is no token file, and --force replaces nothing else"), std::string::npos)
            << ended.errors;
        EXPECT_EQ(read_file(directory_ / path), before);
    }
    write_file(directory_ / "empty", "");
    EXPECT_EQ(run(directory_.path(), {"prepare", "--force", "--out", "empty", "text.txt"}).code, 0);
    EXPECT_EQ(run(directory_.path(), {"prepare", "--force", "--out", "empty", "text.txt"}).code, 0);
}

}  // namespace
}  // namespace penstock::testing
