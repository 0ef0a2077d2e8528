#include "bench/io/fio.h"
#include "aio/words/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace penstock::bench {
namespace {

std::string sample() {
    std::ifstream file(PENSTOCK_SOURCE_DIR "/tests/bench/data/fio-3.33-two-jobs.json");
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string with(std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

ExitCode refusal(const std::string& text) {
    try {
        parse_fio(text);
    } catch (const Error& error) {
        return error.code();
    }
    return ExitCode::ok;
}

bool has(const std::vector<std::string>& arguments, const std::string& one) {
    return std::find(arguments.begin(), arguments.end(), one) != arguments.end();
}

// The numbers below were read off the kept file by hand: this is what fio 3.33 wrote for a writer and a paced reader.
TEST(Fio, ReportOfTwoJobsIsRead) {
    const std::vector<FioFigures> jobs = parse_fio(sample());
    ASSERT_EQ(jobs.size(), 2U);
    EXPECT_EQ(jobs[0].name, "writer");
    EXPECT_EQ(jobs[0].write_bytes, 1202716672U);
    EXPECT_EQ(jobs[0].read_bytes, 0U);
    EXPECT_DOUBLE_EQ(jobs[0].seconds, 0.504);
    EXPECT_NEAR(jobs[0].cpu_seconds, 0.051999999, 1e-6);
    EXPECT_EQ(jobs[0].p99.count(), 10551296);
    EXPECT_EQ(jobs[1].name, "reader");
    EXPECT_EQ(jobs[1].read_bytes, 97517568U);
    EXPECT_EQ(jobs[1].p50.count(), 2211840);
    EXPECT_EQ(jobs[1].p99.count(), 33423360);
    EXPECT_EQ(jobs[1].p999.count(), 33423360);
}

TEST(Fio, WarningsBeforeTheReportArePassedOver) {
    EXPECT_EQ(parse_fio("fio: this is said before\n" + sample()).size(), 2U);
}

TEST(Fio, WithoutLatenciesThereAreNone) {
    const std::string text = with(sample(), "\"percentile\"", "\"something else\"");
    EXPECT_EQ(parse_fio(with(text, "\"percentile\"", "\"something else\""))[0].p99.count(), 0);
}

TEST(Fio, FailedJobIsAnError) {
    EXPECT_EQ(refusal(with(sample(), "\"error\": 0", "\"error\": 5")), ExitCode::storage);
}

TEST(Fio, JobThatMovedNothingIsAnError) {
    const std::string bytes = "\"io_bytes\": 1202716672";
    EXPECT_EQ(refusal(with(sample(), bytes, "\"io_bytes\": 0")), ExitCode::storage);
}

TEST(Fio, WhatIsNoReportIsAnError) {
    for (const char* text : {"", "fio: cannot", "{", "{}", "{\"jobs\": 3}", "{\"jobs\": [{}]}"}) {
        EXPECT_EQ(refusal(text), ExitCode::internal) << text;
    }
}

TEST(Fio, CommandAsksForTheSameAsOurSideHas) {
    FioCommand command{.path = "/d/f", .bytes = 1U << 30, .seconds = 0.25, .jobs = {{.name = "a", .pattern = "read"}}};
    std::vector<std::string> plain = fio_arguments(command);
    EXPECT_EQ(plain[0], "fio");
    for (const char* argument : {"--filename=/d/f", "--size=1073741824", "--runtime=250ms", "--time_based=1",
                                 "--direct=1", "--ioengine=io_uring", "--name=a", "--rw=read", "--bs=1048576",
                                 "--iodepth=8", "--gtod_reduce=1", "--allow_file_create=0"}) {
        EXPECT_TRUE(has(plain, argument)) << argument;
    }
    for (const char* argument : {"--mem=mmaphuge", "--fixedbufs=1", "--registerfiles=1"})
        EXPECT_FALSE(has(plain, argument));
    command.memory = FioMemory::huge_pages;
    command.registered_memory = command.registered_file = true;
    for (const char* argument : {"--mem=mmaphuge", "--fixedbufs=1", "--registerfiles=1"})
        EXPECT_TRUE(has(fio_arguments(command), argument)) << argument;
}

TEST(Fio, CommandWithoutSecondsGoesOverTheFileOnce) {
    const FioCommand command{.path = "f", .bytes = 4096, .jobs = {{.name = "a", .pattern = "write"}}};
    for (const std::string& argument : fio_arguments(command)) {
        EXPECT_EQ(argument.find("runtime"), std::string::npos);
        EXPECT_EQ(argument.find("time_based"), std::string::npos);
    }
}

TEST(Fio, LatenciesAndRateAreAskedForWhereWanted) {
    const FioCommand command{
        .path = "f",
        .bytes = 4096,
        .latencies = true,
        .jobs = {{.name = "w", .pattern = "write"},
                 {.name = "r", .pattern = "randread", .depth = 1, .rate_bytes_per_second = 200'000'000}}};
    const std::vector<std::string> arguments = fio_arguments(command);
    EXPECT_TRUE(has(arguments, "--rate=200000000"));
    EXPECT_TRUE(has(arguments, "--percentile_list=50:99:99.9"));
    EXPECT_FALSE(has(arguments, "--gtod_reduce=1"));
}

TEST(Fio, CommandIsShownSoThatAShellTakesIt) {
    EXPECT_EQ(shown({"fio", "--filename=/a b/c", "--rw=read"}), "fio '--filename=/a b/c' --rw=read");
}

}  // namespace
}  // namespace penstock::bench
