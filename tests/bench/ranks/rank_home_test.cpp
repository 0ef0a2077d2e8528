#include "bench/ranks/rank_home.h"

#include "tests/refusal.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace penstock::bench {
namespace {

RankHome home(const std::string& host, const std::string& boot, std::uint64_t memory_bytes) {
    RankHome made{.process = 7, .cores = 2, .memory_bytes = memory_bytes};
    std::ranges::copy(host, made.host.begin());
    std::ranges::copy(boot, made.boot.begin());
    std::ranges::copy(std::string("0-1"), made.processors.begin());
    return made;
}

// Ranks as srun may deal them out, of hosts with one name: what tells machines apart is the boot.
std::vector<RankHome> two_machines() {
    return {home("node", "a", 4ULL << 30), home("node", "b", 8ULL << 30), home("node", "a", 3ULL << 30)};
}

TEST(RankHome, RanksStandWithTheirMachine) {
    std::string text;
    for (const HomeLine& line : home_lines(two_machines())) text += line.name + ": " + line.text + "\n";
    EXPECT_EQ(text,
              "machine node: 3.0 GiB of memory free, 2 ranks\n"
              "rank 0: node, process 7, processors 0-1, 2 cores\n"
              "rank 2: node, process 7, processors 0-1, 2 cores\n"
              "machine node: 8.0 GiB of memory free, 1 rank\n"
              "rank 1: node, process 7, processors 0-1, 2 cores\n");
}

TEST(RankHome, MemoryIsThatOfTheMachineForAllItsRanks) {
    const auto said = [](std::uint64_t bytes) {
        return refusal_of(ExitCode::does_not_fit, [&] { check_homes(two_machines(), {"parts", bytes, "--bytes"}); });
    };
    EXPECT_EQ(said(3ULL << 29), "accepted");
    EXPECT_SAYS(said((3ULL << 29) + pool::granule_bytes), "machine node");
}

TEST(RankHome, IsReadFromTheMachine) {
    const TemporaryDirectory root;
    std::filesystem::create_directories(root / "proc/sys/kernel/random");
    std::filesystem::create_directories(root / "proc/self");
    std::ofstream(root / "proc/sys/kernel/random/boot_id") << "1b4e\n";
    std::ofstream(root / "proc/self/status") << "Name:\tx\nCpus_allowed:\tf\nCpus_allowed_list:\t0-3,8\n";
    std::ofstream(root / "proc/meminfo") << "MemTotal: 9000 kB\nMemAvailable: 8000 kB\n";
    const RankHome read = read_rank_home(root.path());
    EXPECT_STREQ(read.boot.data(), "1b4e");
    EXPECT_STREQ(read.processors.data(), "0-3,8");
    EXPECT_EQ(read.memory_bytes, 8000U << 10);
    EXPECT_EQ(read.process, static_cast<std::uint32_t>(::getpid()));
    EXPECT_GT(read.cores, 0U);
}

}  // namespace
}  // namespace penstock::bench
