// The program as libgomp and glibc see it: libgomp itself prints, when it is set up, how long its threads will spin.
#include "tests/trainer/data/text_files.h"
#include "tests/trainer/program/program.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace penstock::testing {
namespace {

constexpr auto ours = "GOMP_SPINCOUNT = '10000'";
constexpr auto of_libgomp = "GOMP_SPINCOUNT = '300000'";
constexpr auto head = "OPENMP DISPLAY ENVIRONMENT BEGIN";

// `command`, as if nothing of this were set, but for `variables`.
Ended displayed(std::vector<std::string> command, const std::vector<std::string>& variables = {}) {
    std::vector<std::string> whole = {"/usr/bin/env",   "-u", "OMP_WAIT_POLICY", "-u",
                                      "GOMP_SPINCOUNT", "-u", "GLIBC_TUNABLES",  "OMP_DISPLAY_ENV=verbose"};
    whole.insert(whole.end(), variables.begin(), variables.end());
    whole.insert(whole.end(), command.begin(), command.end());
    const TemporaryDirectory directory;
    const Ended ended = run_command(directory.path(), whole);
    EXPECT_EQ(ended.code, 0) << ended.errors;
    return ended;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// As it is after the first start: what was started tells, and does no more.
std::string environment_of_a_training(const std::string& setting) {
    const TemporaryDirectory directory;
    write_toy(directory.path());
    Program program(directory.path(), {"/bin/bash", "-c",
                                       "unset OMP_WAIT_POLICY GOMP_SPINCOUNT GLIBC_TUNABLES; " + setting +
                                           " exec \"$0\" train config.json --steps 100000",
                                       PENSTOCK_PROGRAM});
    EXPECT_TRUE(program.says("step 1/100000"));
    return read_file("/proc/" + std::to_string(program.pid()) + "/environ");
}

TEST(Environment, ThreadsOfVerbsThatComputeSpinShortly) {
    for (const std::string verb : {"train", "plan"}) {
        const Ended ended = displayed(penstock({verb, "--help"}));
        EXPECT_TRUE(has(ended.errors, ours)) << ended.errors;
        EXPECT_EQ(ended.errors.find(head), ended.errors.rfind(head)) << "libraries were set up twice";
        EXPECT_TRUE(has(ended.output, "Usage: penstock " + verb)) << ended.output;
    }
}

// glibc 2.36 writes a NUL behind the first tunable where it stands.
TEST(Environment, MemoryThatWasFreedIsKept) {
    EXPECT_TRUE(has(environment_of_a_training(""), "GLIBC_TUNABLES=glibc.malloc.hugetlb=1"));
}

TEST(Environment, WhatTheUserChoseOfMemoryStays) {
    const std::string one = environment_of_a_training("export GLIBC_TUNABLES=glibc.malloc.arena_max=2;");
    EXPECT_TRUE(has(one, "GLIBC_TUNABLES=glibc.malloc.arena_max=2"));
    EXPECT_FALSE(has(one, "hugetlb"));
    EXPECT_TRUE(has(one, "GOMP_SPINCOUNT=10000"));
    EXPECT_FALSE(has(environment_of_a_training("export MALLOC_TRIM_THRESHOLD_=1000;"), "GLIBC_TUNABLES"));
}

TEST(Environment, WhatTheUserChoseStays) {
    const std::vector<std::string> train = penstock({"train", "--help"});
    EXPECT_TRUE(has(displayed(train, {"GOMP_SPINCOUNT=123"}).errors, "GOMP_SPINCOUNT = '123'"));
    EXPECT_TRUE(has(displayed(train, {"OMP_WAIT_POLICY=active"}).errors, "OMP_WAIT_POLICY = 'ACTIVE'"));
    EXPECT_FALSE(has(displayed(train, {"OMP_WAIT_POLICY_ALL=active"}).errors, ours));
}

TEST(Environment, VerbsThatDoNotComputeAreLeftAlone) {
    EXPECT_TRUE(has(displayed(penstock({"keys"})).errors, of_libgomp));
    EXPECT_TRUE(has(displayed(penstock({"--version"})).errors, of_libgomp));
}

// There the path of the start is the linker's, and the program one of its arguments.
TEST(Environment, AProgramThatTheDynamicLinkerWasToldToStartIsLeftAlone) {
    const std::string linker = "/lib64/ld-linux-x86-64.so.2";
    if (!std::filesystem::exists(linker)) GTEST_SKIP() << "no " << linker;
    std::vector<std::string> command = penstock({"train", "--help"});
    command.insert(command.begin(), linker);
    EXPECT_TRUE(has(displayed(command).errors, of_libgomp));
}

TEST(Environment, MoreVariablesThanItHasRoomForChangeNothing) {
    std::vector<std::string> variables;
    for (int i = 0; i < 5000; ++i) variables.push_back("V" + std::to_string(i) + "=");
    EXPECT_TRUE(has(displayed(penstock({"train", "--help"}), variables).errors, of_libgomp));
}

TEST(Environment, NameArgumentsAndDescriptorsStay) {
    const TemporaryDirectory directory;
    write_toy(directory.path());
    Program program(directory.path(),
                    {"/bin/bash", "-c",
                     "unset OMP_WAIT_POLICY GOMP_SPINCOUNT GLIBC_TUNABLES; exec 9<text.txt -a 'another name' "
                     "\"$0\" train config.json --steps 100000 --set 'run.name=two words'",
                     PENSTOCK_PROGRAM});
    ASSERT_TRUE(program.says("step 1/100000"));
    const std::string process = "/proc/" + std::to_string(program.pid());
    std::string arguments = read_file(process + "/cmdline");
    std::replace(arguments.begin(), arguments.end(), '\0', '|');
    EXPECT_EQ(arguments, "another name|train|config.json|--steps|100000|--set|run.name=two words|");
    EXPECT_EQ(read_file(process + "/comm"), "penstock\n");
    EXPECT_TRUE(has(read_file(process + "/environ"), "GOMP_SPINCOUNT=10000"));
    EXPECT_EQ(std::filesystem::read_symlink(process + "/fd/9").filename(), "text.txt");
}

}  // namespace
}  // namespace penstock::testing
