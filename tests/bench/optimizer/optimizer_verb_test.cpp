// The verb from its command line to its figures, on small arrays, beside peers that are a shell script.
#include "aio/words/error.h"
#include "bench/harness/verbs.h"
#include "bench/optimizer/optimizer_peers.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace penstock::bench {
namespace {

constexpr const char* small = "optimizer --numel 65536 --seconds 0.001 --rounds 2 --threads 3 ";

void run(Report& report, const std::string& arguments) {
    CLI::App app("test");
    const BenchRun measure = add_optimizer_verb(app);
    app.parse(arguments);
    measure(report);
}

std::string refusal(const std::string& arguments, ExitCode code) {
    Report report("optimizer");
    try {
        run(report, arguments);
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), code) << error.what();
        return error.what();
    } catch (const CLI::ParseError& error) {
        EXPECT_EQ(ExitCode::usage, code) << error.what();
        return error.what();
    }
    return "accepted";
}

const Figure& figure(const Report& report, const std::string& name) {
    const Figure* found = report.find(name);
    EXPECT_NE(found, nullptr) << name;
    static const Figure none{.name = "none", .unit = "", .rounds = {1}};
    return found == nullptr ? none : *found;
}

// A folder like a virtual environment, whose python keeps its arguments and prints `output`.
class Peers : public ::testing::Test {
   protected:
    void make_python(const std::string& output, const std::string& deed = "") {
        std::filesystem::create_directories(scratch_ / "venv/bin");
        const std::string python = scratch_ / "venv/bin/python";
        std::ofstream(python) << "#!/bin/sh\necho \"$*\" >> " << scratch_ / "log"
                              << "\n"
                              << deed << "\ncat <<END\n"
                              << output << "\nEND\n";
        std::filesystem::permissions(python, std::filesystem::perms::owner_all);
    }
    std::string log() const {
        std::ifstream file(scratch_ / "log");
        return {std::istreambuf_iterator<char>(file), {}};
    }
    std::string with_peers() const { return small + ("--peers " + (scratch_ / "venv")); }

    const TemporaryDirectory scratch_;
};

constexpr const char* two_peers = R"({"peers": [{"name": "one", "steps": 4, "seconds": 2},
    {"name": "two", "steps": 1, "seconds": 0.25}], "notes": ["three is left out: it is not there"]})";

TEST(OptimizerVerb, HasEachContenderAtOneAndAtAllThreads) {
    Report report("optimizer");
    run(report, small);
    for (const char* threads : {", 1 thread", ", 3 threads"}) {
        for (const char* name :
             {"triad", "triad in place", "adamw", "adam", "sgd with momentum", "lion", "adagrad",
              "adamw in split, fp32 gradient", "adamw in split, bf16 gradient", "adamw in compact, bf16 gradient"}) {
            const Figure& rate = figure(report, name + std::string(threads));
            EXPECT_EQ(rate.unit, "GB/s");
            EXPECT_EQ(rate.rounds.size(), 2U) << name;
            EXPECT_GT(rate.low(), 0) << name;
        }
        for (const char* yardstick : {"triad", "triad in place"}) {
            const Figure& share = figure(report, std::string("adamw ÷ ") + yardstick + threads);
            EXPECT_DOUBLE_EQ(share.target.value_or(Target{}).at_least, 0.75);
            EXPECT_FALSE(figure(report, std::string("lion ÷ ") + yardstick + threads).target);
        }
        const Figure& whole = figure(report, std::string("time of adamw in split, fp32 gradient ÷ adamw") + threads);
        EXPECT_EQ(whole.target.value_or(Target{}).better, Target::Better::lower);
    }
    EXPECT_NE(report.json().find("28 bytes"), std::string::npos);
}

TEST(OptimizerVerb, OneThreadIsMeasuredOnce) {
    Report report("optimizer");
    run(report, "optimizer --numel 65536 --seconds 0.001 --rounds 1 --threads 1");
    EXPECT_TRUE(std::all_of(report.figures().begin(), report.figures().end(),
                            [](const Figure& one) { return one.name.ends_with(", 1 thread"); }));
}

TEST(OptimizerVerb, RatiosAreOfTheSameRounds) {
    Report report("optimizer");
    run(report, small);
    const Figure& above = figure(report, "adamw, 3 threads");
    const Figure& below = figure(report, "triad, 3 threads");
    const Figure& share = figure(report, "adamw ÷ triad, 3 threads");
    for (std::size_t i = 0; i < 2; ++i) EXPECT_DOUBLE_EQ(share.rounds.at(i), above.rounds.at(i) / below.rounds.at(i));
    // Times are compared per step, whatever the bytes: 26 against 28 for each element.
    const Figure& split = figure(report, "adamw in split, bf16 gradient, 3 threads");
    const Figure& time = figure(report, "time of adamw in split, bf16 gradient ÷ adamw, 3 threads");
    for (std::size_t i = 0; i < 2; ++i)
        EXPECT_NEAR(time.rounds.at(i), above.rounds.at(i) / split.rounds.at(i) * 26 / 28, 1e-9);
}

TEST(OptimizerVerb, RefusesWhatMakesNoSense) {
    EXPECT_NE(refusal("optimizer --numel 100", ExitCode::usage).find("multiple of 65536"), std::string::npos);
    EXPECT_NE(refusal("optimizer --numel 0", ExitCode::usage).find("--numel"), std::string::npos);
    EXPECT_NE(refusal("optimizer --numel 1099511627776", ExitCode::does_not_fit).find("--numel"), std::string::npos);
    EXPECT_NE(refusal("optimizer --rounds 0", ExitCode::usage).find("--rounds"), std::string::npos);
    EXPECT_NE(refusal("optimizer --threads 0", ExitCode::usage).find("--threads"), std::string::npos);
    EXPECT_NE(refusal("optimizer --peers /nowhere", ExitCode::usage).find("venv.sh"), std::string::npos);
    EXPECT_NE(refusal("optimizer --peers /tmp", ExitCode::usage).find("/tmp/bin/python"), std::string::npos);
    EXPECT_NE(refusal("optimizer --peers /etc/passwd", ExitCode::usage).find("is no program"), std::string::npos);
}

TEST_F(Peers, TakeTheirTurnInEachRoundWithOurElementsAndThreads) {
    make_python(two_peers);
    Report report("optimizer");
    run(report, with_peers());
    const std::string script = PENSTOCK_SOURCE_DIR "/bench/peers/optimizer.py --numel=65536 --threads=";
    const std::string one = script + "1 --seconds=0.001\n";
    const std::string three = script + "3 --seconds=0.001\n";
    EXPECT_EQ(log(), one + one + three + three);
    // 28 bytes of each of 65536 elements, in half a second and in a quarter.
    EXPECT_DOUBLE_EQ(figure(report, "one, 3 threads").median(), 28 * 65536 / 1e9 / 0.5);
    EXPECT_DOUBLE_EQ(figure(report, "two, 1 thread").median(), 28 * 65536 / 1e9 / 0.25);
    const Figure& time = figure(report, "time of adamw ÷ two, 3 threads");
    // Either there is something to gain, or adamw is at the speed of memory already.
    const bool at_memory = figure(report, "adamw ÷ triad, 3 threads").median() >= 0.85;
    EXPECT_EQ(time.target.has_value(), !at_memory);
    EXPECT_EQ(time.target.value_or(Target{.better = Target::Better::lower}).better, Target::Better::lower);
    EXPECT_EQ(report.json().find(", 3 threads, so its time ÷ the others' has no target") != std::string::npos,
              at_memory);
    const Figure& ours = figure(report, "adamw, 3 threads");
    EXPECT_DOUBLE_EQ(time.rounds.at(0), 28 * 65536 / 1e9 / ours.rounds.at(0) / 0.25);
    EXPECT_NE(report.json().find("three is left out: it is not there, 3 threads"), std::string::npos);
}

TEST_F(Peers, ThatFailOrChangeEndTheMeasurementWithTheirWords) {
    make_python(two_peers, "echo no torch here >&2; exit 3");
    EXPECT_NE(refusal(with_peers(), ExitCode::internal).find("ended with 3: no torch here"), std::string::npos);
    make_python("{}");
    EXPECT_NE(refusal(with_peers(), ExitCode::internal).find("not understood"), std::string::npos);
    std::filesystem::remove(scratch_ / "log");
    // The second time it has something else to say.
    make_python(R"({"peers": [], "notes": []})", "[ $(wc -l < " + scratch_ / "log" + R"() = 1 ] && cat <<END && exit
{"peers": [{"name": "one", "steps": 4, "seconds": 2}], "notes": []}
END)");
    EXPECT_NE(refusal(with_peers(), ExitCode::internal).find("not those of the first round"), std::string::npos);
}

TEST(PeerTimes, AreReadOffTheScriptsWords) {
    const PeerTimes times = parse_peers(two_peers);
    ASSERT_EQ(times.peers.size(), 2U);
    EXPECT_EQ(times.peers[0].name, "one");
    EXPECT_DOUBLE_EQ(times.peers[0].seconds_per_step, 0.5);
    for (const char* wrong : {"", "[]", R"({"peers": [{"name": "a"}], "notes": []})",
                              R"({"peers": [{"name": "a", "steps": 0, "seconds": 1}], "notes": []})",
                              R"({"peers": [{"name": "a", "steps": 1, "seconds": 0}], "notes": []})"}) {
        EXPECT_THROW(parse_peers(wrong), Error) << wrong;
    }
}

}  // namespace
}  // namespace penstock::bench
