#include "zero_infinity/trace/trace_file.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "zero_infinity/trace/trace_json.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

namespace penstock::zero {
namespace {

namespace fs = std::filesystem;

class TraceFileTest : public ::testing::Test {
   protected:
    std::string text_of(const std::string& name) const {
        std::ifstream file(directory_ / name);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void write(const std::string& name, const std::string& text) const { std::ofstream(directory_ / name) << text; }
    std::set<std::string> files() const {
        std::set<std::string> names;
        for (const auto& entry : fs::directory_iterator(directory_.path())) names.insert(entry.path().filename());
        return names;
    }

    TemporaryDirectory directory_;
    std::string path_ = directory_ / "step.json";
};

TEST_F(TraceFileTest, LeavesNothingButTheTrace) {
    const TraceFile file(path_, "--trace");
    EXPECT_EQ(files(), std::set<std::string>{});
    file.write();
    EXPECT_EQ(files(), std::set<std::string>{"step.json"});
    EXPECT_TRUE(text_of("step.json").starts_with(trace_beginning));
}

TEST_F(TraceFileTest, WhatWasWrittenInPartIsRemoved) {
    const TraceFile file(path_, "--trace");
    write("step.json", "before");
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit short_files{.rlim_cur = 100, .rlim_max = before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &short_files), 0);
    const std::string words = refusal_of(ExitCode::storage, [&] { file.write(); });
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    std::signal(SIGXFSZ, handler);
    EXPECT_NE(words.find("File too large"), std::string::npos) << words;
    EXPECT_EQ(files(), std::set<std::string>{"step.json"});
    EXPECT_EQ(text_of("step.json"), "before");
}

TEST_F(TraceFileTest, WhatAKilledProcessLeftIsWrittenOver) {
    for (const std::string& left : {std::string(), std::string(trace_beginning.substr(0, 7)),
                                    std::string(trace_beginning) + "0, \"traceEvents\": ["}) {
        write("step.json.partial", left);
        TraceFile(path_, "--trace").write();
        EXPECT_EQ(files(), std::set<std::string>{"step.json"});
    }
}

TEST_F(TraceFileTest, SomebodysFileInItsWayIsRefusedAndStays) {
    const auto expect_refused = [&] {
        const std::string words = refusal_of(ExitCode::usage, [&] { TraceFile(path_, "--trace"); });
        EXPECT_NE(words.find("step.json.partial"), std::string::npos) << words;
    };
    write("step.json.partial", "tokens");
    expect_refused();
    EXPECT_EQ(text_of("step.json.partial"), "tokens");
    fs::rename(directory_ / "step.json.partial", directory_ / "other");
    fs::create_symlink("other", directory_ / "step.json.partial");
    expect_refused();
    fs::remove(directory_ / "step.json.partial");
    write("empty", "");
    fs::create_hard_link(directory_ / "empty", directory_ / "step.json.partial");
    expect_refused();
    EXPECT_EQ(text_of("other"), "tokens");
    fs::remove(directory_ / "step.json.partial");
    fs::create_directory(directory_ / "step.json.partial");
    expect_refused();
    EXPECT_TRUE(fs::exists(directory_ / "step.json.partial"));
}

TEST_F(TraceFileTest, IsNotInAStore) {
    const std::vector<std::string> stores{directory_ / "swap", directory_ / "second"};
    for (const char* name : {"swap", "swap/step.json", "second/kept/step-3/data", "x/../swap/step.json"}) {
        const std::string words =
            refusal_of(ExitCode::usage, [&] { refuse_in_store(directory_ / name, "--trace", stores); });
        EXPECT_NE(words.find("--trace " + directory_ / name), std::string::npos) << words;
    }
    refuse_in_store(directory_ / "swap2/step.json", "--trace", stores);
    refuse_in_store(path_, "--trace", stores);
}

}  // namespace
}  // namespace penstock::zero
