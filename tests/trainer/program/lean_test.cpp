// The program without LibTorch: what it has works, what it lacks is refused with what has it.
#include "tests/temporary_directory.h"
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace penstock::testing {
namespace {

class Lean : public ::testing::Test {
   protected:
    Ended lean(const std::vector<std::string>& arguments) { return run(directory_.path(), arguments); }

    TemporaryDirectory directory_;
};

TEST_F(Lean, HelpListsTheVerbsItHasAndSaysWhatHasTheOthers) {
    const Ended ended = lean({"--help"});
    EXPECT_EQ(ended.code, 0);
    for (const char* verb : {"prepare", "ckpt", "bench", "keys"})
        EXPECT_NE(ended.output.find(std::string("\n  ") + verb + ' '), std::string::npos) << verb << ended.output;
    for (const char* verb : {"train", "plan"}) {
        EXPECT_EQ(ended.output.find(std::string("\n  ") + verb + ' '), std::string::npos) << ended.output;
        EXPECT_NE(ended.output.find(std::string("\n'") + verb + "' needs LibTorch"), std::string::npos) << ended.output;
    }
}

TEST_F(Lean, WhatItLacksIsRefusedInOneLineWhateverFollows) {
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"train"},
                                                      {"train", "my.json", "--set", "a=b", "--", "-x"},
                                                      {"train", "--help"},
                                                      {"help", "train"},
                                                      {"plan", "--model", "hidden=64"},
                                                      {"bench", "step", "--dir", "."},
                                                      {"bench", "--json", "step", "--help"}}) {
        SCOPED_TRACE(::testing::PrintToString(arguments));
        const Ended ended = lean(arguments);
        EXPECT_EQ(ended.code, 2);
        EXPECT_EQ(ended.output, "");
        EXPECT_EQ(std::ranges::count(ended.errors, '\n'), 1) << ended.errors;
        EXPECT_NE(ended.errors.find("which this program is built without: `./run build` in a checkout"),
                  std::string::npos)
            << ended.errors;
    }
}

TEST_F(Lean, MistypedVerbsAreToldThoseItHas) {
    EXPECT_NE(lean({"trian"}).errors.find("there are: prepare, ckpt, bench, keys\n"), std::string::npos);
    EXPECT_NE(lean({"bench", "x"}).errors.find("there are: io, transfer, optimizer, swap, ranks\n"), std::string::npos);
}

TEST_F(Lean, WhatNeedsNoTorchWorks) {
    EXPECT_EQ(lean({"--version"}).output.find("penstock "), 0);
    EXPECT_NE(lean({"keys"}).output.find("memory.host_budget"), std::string::npos);
    write_file(directory_ / "text.txt", toy_text(1000, 1));
    EXPECT_EQ(lean({"prepare", "--out", "text.tokens", "text.txt"}).code, 0);
    EXPECT_TRUE(std::filesystem::exists(directory_ / "text.tokens"));
    const Ended nothing = lean({"ckpt", "ls", "nowhere"});
    EXPECT_EQ(nothing.code, 2);
    EXPECT_NE(nothing.errors.find("penstock: error: "), std::string::npos);
    EXPECT_NE(nothing.errors.find("nowhere"), std::string::npos) << nothing.errors;
}

TEST_F(Lean, ItMeasuresByItself) {
    const Ended ended = lean({"bench", "swap", "--help"});
    EXPECT_EQ(ended.code, 0);
    EXPECT_NE(ended.output.find("penstock bench swap"), std::string::npos) << ended.output;
    const Ended measured =
        lean({"bench", "optimizer", "--json", "--numel", "65536", "--seconds", "0.001", "--rounds", "2"});
    EXPECT_EQ(measured.code, 0) << measured.errors;
    EXPECT_EQ(measured.output.find('{'), 0) << measured.output;
}

TEST_F(Lean, ItLinksNoTorch) {
    const Ended ended = run_command(directory_.path(), {"/usr/bin/env", "ldd", penstock({})[0]});
    EXPECT_EQ(ended.code, 0);
    EXPECT_EQ(ended.output.find("torch"), std::string::npos) << ended.output;
    EXPECT_EQ(ended.output.find("libc10"), std::string::npos) << ended.output;
}

}  // namespace
}  // namespace penstock::testing
