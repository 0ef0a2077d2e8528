#include "bench/io/io_bench.h"
#include "aio/words/error.h"
#include "bench/harness/byte_option.h"

#include "bench/harness/child.h"
#include "bench/io/io_cases.h"
#include "bench/io/mixed_case.h"
#include "bench/io/tune.h"
#include "tests/aio/backend/deny_uring.h"
#include "tests/aio/fakes/scratch.h"
#include "tests/refusal.h"
#include "zero_infinity/measure/block_source.h"
#include "zero_infinity/measure/io_rig.h"

#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

namespace penstock::bench {
namespace {

constexpr std::uint64_t mib = 1U << 20;

template <typename Call>
std::string refusal(const Call& call, ExitCode code) {
    return refusal_of(code, call);
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(IoBenchText, PointsAndBytesAreReadAndWritten) {
    const IoPoint point = parse_point("256KiBx16");
    EXPECT_EQ(point.block_bytes, 256U << 10);
    EXPECT_EQ(point.depth, 16U);
    EXPECT_EQ(to_string(point), "256KiB x 16");
    EXPECT_EQ(byte_option("1.5GiB", "--size"), 3ULL << 29);
    EXPECT_EQ(bytes_text(3 * mib), "3MiB");
    EXPECT_EQ(bytes_text(1000), "1000B");
    for (const char* wrong :
         {"", "1MiB", "x8", "1MiBx", "3MiBx8", "1MiBx0", "1MiBx1000", "1GiBx8", "512x8", "-1x8", "1MiBx8k", "1TiBx8"})
        EXPECT_TRUE(has(refusal([&] { parse_point(wrong); }, ExitCode::usage), "--points")) << wrong;
    for (const char* wrong : {"", "two", "0"})
        EXPECT_TRUE(has(refusal([&] { byte_option(wrong, "--size"); }, ExitCode::usage), "--size")) << wrong;
    EXPECT_EQ(bytes_of_text("8MiB"), "8388608");
    EXPECT_THROW(bytes_of_text("8MB"), CLI::ValidationError);
}

TEST(Child, OutputErrorsAndStatusAreKept) {
    Interruption stop;
    const ChildOutcome child =
        run_child({"/bin/sh", "-c", "echo said; echo wrong >&2; exit 3"}, std::chrono::seconds(60), stop);
    EXPECT_EQ(child.exit_status, 3);
    EXPECT_EQ(child.output, "said\n");
    EXPECT_EQ(child.errors, "wrong\n");
    EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -9 $$"}, std::chrono::seconds(60), stop).exit_status, 128 + 9);
    EXPECT_EQ(run_child({"no-such-program-here"}, std::chrono::seconds(60), stop).exit_status, 127);
}

TEST(Child, MoreOutputThanAPipeHoldsIsRead) {
    Interruption stop;
    const ChildOutcome child = run_child({"/bin/sh", "-c", "head -c 1000000 /dev/zero; head -c 300000 /dev/zero >&2"},
                                         std::chrono::seconds(60), stop);
    EXPECT_EQ(child.output.size(), 1'000'000U);
    EXPECT_EQ(child.errors.size(), 300'000U);
}

TEST(Child, ThatDoesNotEndIsKilledAtItsDeadline) {
    Interruption stop;
    const auto call = [&] { run_child({"/bin/sleep", "1000"}, std::chrono::milliseconds(50), stop); };
    EXPECT_TRUE(has(refusal(call, ExitCode::storage), "/bin/sleep has not ended"));
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);  // nobody is left
}

TEST(Child, IsStoppedWithUsByASignalWhichItDoesNotHoldBack) {
    Interruption stop;
    EXPECT_EQ(run_child({"/bin/sh", "-c", "kill -TERM $$"}, std::chrono::seconds(60), stop).exit_status, 128 + SIGTERM);
    const auto call = [&] {
        run_child({"/bin/sh", "-c", "kill -TERM $PPID; exec sleep 1000"}, std::chrono::seconds(200), stop);
    };
    EXPECT_NE(refusal(call, ExitCode::interrupted), "accepted");
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
}

class IoBenchTest : public ::testing::Test {
   protected:
    IoBenchTest() {
        options_.directory = scratch_.file("");
        options_.bytes = 64 * mib;
        options_.rounds = 2;
        options_.seconds = 0.05;
    }
    std::set<std::string> files() const {
        std::set<std::string> names;
        for (const auto& entry : std::filesystem::directory_iterator(options_.directory))
            names.insert(entry.path().filename().string());
        return names;
    }
    // Without fio: what is compared is not this program's.
    template <typename Case>
    void run(const Case& one) {
        Interruption stop;
        const BenchFile file(options_.directory, "io", options_.bytes);
        IoBench bench{.options = options_, .stop = stop, .report = report_, .file = file, .fio = {}, .noted = {}};
        fill(bench, file);
        one(bench);
    }
    void expect_figure(const std::string& name) const {
        const Figure* figure = report_.find(name);
        ASSERT_NE(figure, nullptr) << name;
        EXPECT_GT(figure->low(), 0) << name;
    }

    TemporaryDirectory scratch_;
    IoBenchOptions options_;
    Report report_{"io"};
};

TEST_F(IoBenchTest, EveryBlockCaseHasItsFiguresAndLeavesNothing) {
    options_.points = {parse_point("1MiBx4"), parse_point("64KiBx1")};
    run([&](IoBench& bench) {
        for (const std::string& name : block_case_names()) run_block_case(bench, name);
    });
    for (const std::string& name : block_case_names()) {
        for (const char* point : {"1MiB x 4", "64KiB x 1"}) {
            expect_figure(name + " " + point + ": penstock");
            EXPECT_EQ(report_.find(name + " " + point + ": penstock")->rounds.size(), options_.rounds);
        }
    }
    EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(IoBenchTest, DemandReadsRunBesideWriteBack) {
    run(run_demand_case);
    expect_figure("demand beside write-back: read p99, penstock");
    expect_figure("demand beside write-back: writes, penstock");
    expect_figure("demand beside write-back: reads, penstock");
}

TEST_F(IoBenchTest, TuneAndSustainedFillAProfileThatIsTakenBack) {
    options_.rounds = 1;
    options_.sustained_bytes = 64 * mib;
    aio::DeviceProfile profile;
    run([&](IoBench& bench) {
        tune(bench, profile);
        measure_sustained(bench, profile);
    });
    EXPECT_GT(profile.read_bytes_per_second.value_or(0), 0);
    EXPECT_GT(profile.overwrite_bytes_per_second.value_or(0), 0);
    EXPECT_GT(profile.first_write_bytes_per_second.value_or(0), 0);
    EXPECT_EQ(profile.sustained_write_bytes_per_second.has_value(), profile.write_cache_bytes.has_value());
    write_profile(scratch_.file(aio::profile_name), profile);
    const auto found = aio::find_profile(options_.directory);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->profile.block_bytes, profile.block_bytes);
    EXPECT_EQ(files(), std::set<std::string>{aio::profile_name});
}

TEST(SustainedProfile, GetsARateWhereTheRateFellAndElseLosesThatOfBefore) {
    aio::DeviceProfile profile{.overwrite_bytes_per_second = 3e9};
    put_sustained(profile, {.bytes_per_second = 1e9, .cache_bytes = 20'000'000'000U});
    EXPECT_EQ(profile.sustained_write_bytes_per_second, 1e9);
    EXPECT_EQ(profile.write_cache_bytes, 20'000'000'000U);
    EXPECT_EQ(profile.planned_write_bytes_per_second(), 1e9);
    put_sustained(profile, {.bytes_per_second = 8e9, .cache_bytes = {}});
    EXPECT_EQ(profile.sustained_write_bytes_per_second, std::nullopt);
    EXPECT_EQ(profile.write_cache_bytes, std::nullopt);
    EXPECT_EQ(profile.planned_write_bytes_per_second(), 3e9);
}

TEST_F(IoBenchTest, AnErrorOfOneTransferEndsTheMeasurementWithItsWords) {
    const BenchFile file(options_.directory, "io", 4 * mib);
    zero::IoRig rig(file.file(), zero::plain_rig(mib, 2 * mib));
    // Behind the file's end there is nothing to read.
    zero::BlockSource source(file.file(), {.block_bytes = mib, .file_bytes = 8 * mib, .once = true});
    const std::string message = refusal([&] { rig.run(source); }, ExitCode::storage);
    EXPECT_TRUE(has(message, "read ")) << message;
    EXPECT_TRUE(has(message, file.path())) << message;
    zero::BlockSource whole(file.file(), {.block_bytes = mib, .file_bytes = 4 * mib, .once = true});
    EXPECT_EQ(rig.run(whole).bytes, 4 * mib);
}

TEST_F(IoBenchTest, ASignalEndsAMeasurementAndTheFileIsGone) {
    options_.seconds = 20;  // not for ever, should the signal be missed
    const auto call = [&] {
        run([&](IoBench& bench) {
            ::kill(::getpid(), SIGTERM);
            run_block_case(bench, "read");
        });
    };
    EXPECT_NE(refusal(call, ExitCode::interrupted), "accepted");
    EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(IoBenchTest, RefusesDirectoriesThatCannotBeMeasured) {
    std::ofstream(scratch_.file("plain")) << "text";
    EXPECT_TRUE(
        has(refusal([&] { check_bench_directory(scratch_.file("plain"), 0); }, ExitCode::usage), "no directory"));
    EXPECT_TRUE(has(refusal([&] { check_bench_directory(scratch_.file("none"), 0); }, ExitCode::usage), "ENOENT"));
    const auto much = [&] { check_bench_directory(options_.directory, 1ULL << 60); };
    EXPECT_TRUE(has(refusal(much, ExitCode::does_not_fit), "smaller --size"));
}

TEST_F(IoBenchTest, AFileThatCannotBeMadeReadyIsNotLeft) {
    const auto make = [&](std::uint64_t bytes) { BenchFile(options_.directory, "io", bytes); };
    EXPECT_NE(refusal([&] { make(1ULL << 60); }, ExitCode::does_not_fit), "accepted");
    EXPECT_EQ(files(), std::set<std::string>{});
    // Opened, and then not to be prepared: every fcntl() of this thread fails.
    std::thread([&] {
        ASSERT_TRUE(aio::deny_calls({__NR_fcntl}, EPERM));
        EXPECT_TRUE(has(refusal([&] { make(4 * mib); }, ExitCode::storage), "EPERM"));
    }).join();
    EXPECT_EQ(files(), std::set<std::string>{});
}

TEST_F(IoBenchTest, AFileOfThatNameIsSomebodyElsesAndStays) {
    const std::string name = "penstock-bench-" + std::to_string(::getpid()) + "-io.tmp";
    std::ofstream(scratch_.file(name)) << "data";
    const auto make = [&] { BenchFile(options_.directory, "io", 4 * mib); };
    EXPECT_TRUE(has(refusal(make, ExitCode::storage), "EEXIST"));
    EXPECT_EQ(files(), std::set<std::string>{name});
}

TEST_F(IoBenchTest, SaysWhatAKilledRunLeft) {
    const pid_t dead = ::fork();
    if (dead == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(dead, nullptr, 0), dead);
    const std::string left = "penstock-bench-" + std::to_string(dead) + "-io.tmp";
    std::ofstream(scratch_.file(left)) << "data";
    std::ofstream(scratch_.file("penstock-bench-" + std::to_string(::getpid()) + "-io.tmp")) << "in use";
    std::ofstream(scratch_.file("penstock-bench-.tmp")) << "somebody's";
    std::string notes;
    for (const std::string& line : check_bench_directory(options_.directory, 0)) notes += line + "\n";
    EXPECT_TRUE(has(notes, left)) << notes;
    EXPECT_FALSE(has(notes, std::to_string(::getpid()))) << notes;
    EXPECT_FALSE(has(notes, "bench-.tmp")) << notes;
    EXPECT_EQ(files().size(), 3U);
}

TEST_F(IoBenchTest, AFileInMemoryIsSaid) {
    if (!std::filesystem::is_directory("/dev/shm")) GTEST_SKIP() << "no /dev/shm here";
    const std::vector<std::string> notes = check_bench_directory("/dev/shm", 0);
    ASSERT_FALSE(notes.empty());
    EXPECT_TRUE(has(notes[0], "in memory")) << notes[0];
}

TEST_F(IoBenchTest, OrderRotatesAndIsReversedInBetween) {
    options_.rounds = 4;
    std::vector<std::size_t> order;
    run([&](IoBench& bench) { run_rounds(bench, "test", 3, [&](std::size_t i) { order.push_back(i); }); });
    EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 2, 1, 0, 1, 2, 0, 0, 2, 1}));
}

TEST(Rounds, HaveEachContenderOnceAndNeighboursThatChange) {
    std::array<std::array<int, 3>, 3> follows{};  // [who][whom], within a round
    std::array<int, 3> first{};
    for (std::size_t round = 0; round < 6; ++round) {
        std::array<int, 3> turns{};
        for (std::size_t turn = 0; turn < 3; ++turn) {
            const std::size_t who = contender(round, turn, 3);
            ++turns.at(who);
            if (turn == 0) ++first.at(who);
            if (turn > 0) ++follows.at(who).at(contender(round, turn - 1, 3));
        }
        EXPECT_EQ(turns, (std::array<int, 3>{1, 1, 1}));
    }
    EXPECT_EQ(first, (std::array<int, 3>{2, 2, 2}));
    for (std::size_t who = 0; who < 3; ++who) {
        for (std::size_t whom = 0; whom < 3; ++whom) EXPECT_EQ(follows[who][whom], who == whom ? 0 : 2);
    }
}

}  // namespace
}  // namespace penstock::bench
