#include "aio/words/error.h"
#include "bench/harness/interruption.h"
#include "bench/harness/verbs.h"
#include "bench/swap/null_rounds.h"
#include "bench/swap/swap_rounds.h"
#include "tests/aio/fakes/scratch.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <csignal>
#include <filesystem>

namespace penstock::bench {
namespace {

constexpr std::uint64_t mib = 1U << 20;

SwapBenchOptions small(const std::string& directory) {
    return {.rig = {.directory = directory, .bytes = 5 * mib - 4096, .tile_bytes = mib, .tiles_on_their_way = 2},
            .rounds = 2,
            .seconds = 0.01};
}

std::string refusal(std::vector<std::string> arguments, ExitCode code) {
    CLI::App app("test");
    const BenchRun measure = add_swap_verb(app);
    std::reverse(arguments.begin(), arguments.end());
    arguments.emplace_back("swap");
    try {
        app.parse(arguments);
        Report report("swap");
        measure(report);
    } catch (const CLI::ParseError& error) {
        EXPECT_EQ(code, ExitCode::usage) << error.what();
        return error.what();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        return error.what();
    }
    return "accepted";
}

TEST(SwapBench, EveryPassMovesAllTilesOnBothSidesAndLeavesTheStoreReadable) {
    const TemporaryDirectory scratch;
    Interruption stop;
    {
        SwapRig rig(small(scratch.file("")).rig, stop);
        for (int time = 0; time < 3; ++time) {
            for (const Side side : {Side::store, Side::plain}) {
                for (const TileWork work : {TileWork::write, TileWork::read, TileWork::update, TileWork::verify}) {
                    const SwapPass pass = rig.pass(side, work);  // hashes are checked by the store itself
                    const std::uint64_t once = 5 * mib - 4096;
                    EXPECT_EQ(pass.moved.bytes, work == TileWork::update ? 2 * once : once) << to_string(work);
                    const bool writes = work == TileWork::write || work == TileWork::update;
                    EXPECT_EQ(pass.commit_seconds > 0, side == Side::store && writes);
                }
            }
        }
        EXPECT_GT(rig.commit_one_tile(), 0);
        EXPECT_EQ(rig.create_another(3 * mib).bytes, 6 * mib);
        EXPECT_EQ(rig.hash(0).bytes, 2 * mib);
    }
    EXPECT_TRUE(std::filesystem::is_empty(scratch.file("")));
}

TEST(SwapBench, ReportsEachComparisonWithItsTargetAndEachCost) {
    const TemporaryDirectory scratch;
    Interruption stop;
    Report report("swap");
    const SwapBenchOptions options = small(scratch.file(""));
    run_swap_bench(options, stop, report);
    for (const std::string work : {"write", "read", "update"}) {
        for (const char* figure : {": store", ": plain file", ": CPU of store", ": CPU of plain file"})
            ASSERT_NE(report.find(work + figure), nullptr) << work << figure;
        const Figure* share = report.find(work + ": store ÷ plain file");
        ASSERT_NE(share, nullptr) << work;
        EXPECT_EQ(share->rounds.size(), options.rounds);
        ASSERT_TRUE(share->target);
        EXPECT_EQ(share->target->at_least, 0.95);
    }
    for (const char* figure : {"commit after an update of all tiles: median",
                               "commit's share of a step that rewrites all tiles", "commit after one tile: median",
                               "commit after one tile: p99", "creation: pre-writing", "hash of tiles, one thread"}) {
        ASSERT_NE(report.find(figure), nullptr) << figure;
        EXPECT_EQ(report.find(figure)->rounds.size(), options.rounds) << figure;
        EXPECT_GT(report.find(figure)->low(), 0) << figure;
    }
    EXPECT_LT(report.find("commit's share of a step that rewrites all tiles")->high(), 1);
    EXPECT_TRUE(std::filesystem::is_empty(options.rig.directory));
}

TEST(SwapBench, StoppedByASignalEndsWithNothingLeft) {
    const TemporaryDirectory scratch;
    Interruption stop;
    SwapRig rig(small(scratch.file("")).rig, stop);
    ::raise(SIGTERM);
    try {
        for (;;) rig.pass(Side::store, TileWork::update);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::interrupted);
    }
    Report report("swap");
    EXPECT_THROW(run_swap_bench(small(scratch.file("")), stop, report), Error);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.file("")), {}), 1);  // the rig's own
}

TEST(NullBench, EveryCrewMovesWhatItIsToldAndTheHashesAreRight) {
    const TemporaryDirectory scratch;
    for (const unsigned threads : {0U, 3U}) {
        NullRig rig({.directory = scratch.file(""), .tile_bytes = mib}, threads);
        for (const TileWork work : {TileWork::read, TileWork::write, TileWork::update, TileWork::read}) {
            const zero::Moved moved = rig.run(work, 0.02);
            EXPECT_GE(moved.bytes, 8 * mib) << to_string(work);
            EXPECT_GE(moved.seconds, 0.02) << to_string(work);
        }
        EXPECT_EQ(rig.hash(2, 0).bytes, 16 * mib);
    }
    EXPECT_TRUE(std::filesystem::is_empty(scratch.file("")));
}

TEST(NullBench, ReportsEachNumberOfThreadsBesideTheHashAlone) {
    const TemporaryDirectory scratch;
    Interruption stop;
    Report report("swap");
    run_null_bench({.rig = {.directory = scratch.file(""), .tile_bytes = mib}, .rounds = 2, .seconds = 0.01}, stop,
                   report);
    for (const std::string who : {"the driver's thread hashes", "1 hash thread", "2 hash threads", "4 hash threads"}) {
        for (const char* figure : {"read: ", "write: ", "update: ", "hash alone, as many threads: ",
                                   "update ÷ hash alone: ", "update, CPU: "}) {
            ASSERT_NE(report.find(figure + who), nullptr) << figure << who;
            EXPECT_EQ(report.find(figure + who)->rounds.size(), 2U) << figure << who;
        }
    }
    ASSERT_TRUE(report.find("update: 1 hash thread")->target);
    EXPECT_EQ(report.find("update: 1 hash thread")->target->at_least, 12);
    ASSERT_TRUE(report.find("update: 4 hash threads")->target);
    EXPECT_EQ(report.find("update: 4 hash threads")->target->at_least, 30);
    EXPECT_NE(report.find("triad, all cores"), nullptr);
    ::raise(SIGTERM);
    EXPECT_THROW(run_null_bench({.rig = {.directory = scratch.file(""), .tile_bytes = mib}}, stop, report), Error);
    EXPECT_TRUE(std::filesystem::is_empty(scratch.file("")));
}

TEST(SwapBench, PercentilesAreOfTheValuesThatThereAre) {
    EXPECT_EQ(percentile({7}, 0.99), 7);
    EXPECT_EQ(percentile({3, 1, 2}, 0.5), 2);
    EXPECT_EQ(percentile({4, 3, 1, 2}, 0.5), 2);
    std::vector<double> hundred;
    for (int i = 100; i > 0; --i) hundred.push_back(i);
    EXPECT_EQ(percentile(hundred, 0.99), 99);
    EXPECT_EQ(percentile(hundred, 1), 100);
}

TEST(SwapVerb, RefusesWhatMakesNoSense) {
    const TemporaryDirectory scratch;
    const std::string d = scratch.file("");
    const auto expect = [](const std::vector<std::string>& arguments, ExitCode code, const std::string& part) {
        const std::string message = refusal(arguments, code);
        EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' is not in: " << message;
    };
    expect({}, ExitCode::usage, "--dir");
    expect({"--dir", d, "--size", "much"}, ExitCode::usage, "--size");
    expect({"--dir", d, "--size", "1MiB"}, ExitCode::usage, "at least --tiles tiles");
    expect({"--dir", d, "--tile", "1000"}, ExitCode::usage, "a multiple of 4096");
    expect({"--dir", d, "--tile", "0"}, ExitCode::usage, "a multiple of 4096");
    expect({"--dir", d, "--tiles", "0"}, ExitCode::usage, "--tiles");
    expect({"--dir", d, "--rounds", "0"}, ExitCode::usage, "--rounds");
    expect({"--dir", d, "--seconds", "nan"}, ExitCode::usage, "--seconds");
    expect({"--dir", d, "--backend", "spdk"}, ExitCode::usage, "--backend");
    expect({"--dir", d + "none"}, ExitCode::usage, "existing directory");
    expect({"--dir", d, "--size", "15TiB"}, ExitCode::does_not_fit, "free");
    EXPECT_TRUE(std::filesystem::is_empty(d));
}

}  // namespace
}  // namespace penstock::bench
