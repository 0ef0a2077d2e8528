#include "zero_infinity/plan/ranks/node_disks.h"

#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

constexpr std::uint64_t gib = 1ULL << 30;

zero::RankDisk disk(const std::string& boot, std::uint64_t device, std::uint64_t wanted, std::uint64_t free) {
    zero::RankDisk made{.device = device, .wanted_bytes = wanted, .free_bytes = free};
    boot.copy(made.boot.data(), made.boot.size() - 1);
    std::string("worker-1").copy(made.host.data(), made.host.size() - 1);
    std::string("/nvme/run").copy(made.directory.data(), made.directory.size() - 1);
    return made;
}

// Each rank's own disks.
std::string lacking(const std::vector<std::vector<zero::RankDisk>>& of_ranks) {
    std::vector<zero::RankDisks> all(of_ranks.size());
    for (std::size_t rank = 0; rank < of_ranks.size(); ++rank)
        for (std::size_t i = 0; i < of_ranks[rank].size(); ++i) all[rank][i] = of_ranks[rank][i];
    return zero::lacking_disk(all);
}

TEST(NodeDisks, StoresThatFitAloneAndNotTogetherAreRefused) {
    const zero::RankDisk own = disk("one", 7, 3 * gib, 5 * gib);
    const std::string table = lacking({{own}, {own}});
    for (const char* words : {"the stores of 2 ranks on worker-1 do not fit together where /nvme/run is", "rank 0",
                              "rank 1", "3.00 GiB", "6.00 GiB", "5.00 GiB", "start fewer ranks"})
        EXPECT_NE(table.find(words), std::string::npos) << words << " is not in:\n" << table;
    EXPECT_EQ(lacking({{own}}), "") << "one alone is its store's affair";
    EXPECT_EQ(lacking({{own}, {disk("one", 7, 2 * gib, 5 * gib)}}), "");
    EXPECT_NE(lacking({{own}, {disk("one", 7, 2 * gib, 4 * gib)}}), "") << "the least that one of them saw";
}

TEST(NodeDisks, ADiskIsAFileSystemOfOneMachine) {
    const zero::RankDisk own = disk("one", 7, 3 * gib, 5 * gib);
    EXPECT_EQ(lacking({{own}, {disk("one", 8, 3 * gib, 5 * gib)}}), "") << "another file system";
    EXPECT_EQ(lacking({{own}, {disk("two", 7, 3 * gib, 5 * gib)}}), "") << "another machine";
    EXPECT_EQ(lacking({{own}, {disk("", 7, 3 * gib, 5 * gib)}}), "") << "nobody knows";
    EXPECT_EQ(lacking({{own}, {disk("one", 7, 0, 1)}}), "") << "a store that is there takes nothing more";
    const zero::RankDisk half = disk("one", 7, 3 * gib / 2, 5 * gib);
    EXPECT_NE(lacking({{half, half}, {half, half}}), "") << "two directories of one file system";
    EXPECT_NE(lacking({{disk("one", 9, gib, gib), own}, {disk("one", 9, 0, gib), own}}), "") << "the second one";
}

TEST(NodeDisks, ADirectoryTakesItsShareLessWhatLiesThereAlready) {
    const TemporaryDirectory root;
    const std::vector<std::string> directories = {root / "a", root / "b", root / "none"};
    for (const char* each : {"a", "b"}) std::filesystem::create_directory(root / each);
    std::filesystem::create_directories(root / "proc/sys/kernel/random");
    std::ofstream(root / "proc/sys/kernel/random/boot_id") << "this-boot\n";
    std::ofstream(root / "b/data") << std::string(1 << 20, 'x');
    const std::vector<std::uint16_t> shares = {1, 2, 1};
    const zero::RankDisks disks = zero::disks_of_new_store(directories, shares, 8 << 20, root.path());
    EXPECT_STREQ(disks[0].boot.data(), "this-boot");
    EXPECT_EQ(disks[0].directory.data(), directories[0]);
    EXPECT_EQ(disks[0].wanted_bytes, 2U << 20);
    EXPECT_LE(disks[1].wanted_bytes, 3U << 20);
    EXPECT_GE(disks[1].wanted_bytes, (3U << 20) - (64U << 10));
    EXPECT_EQ(disks[0].device, disks[1].device);
    EXPECT_GT(disks[0].free_bytes, 0U);
    EXPECT_STREQ(disks[2].boot.data(), "") << "not there: the store says so";
    EXPECT_EQ(zero::disks_of_new_store(directories, {}, 9 << 20, root.path())[0].wanted_bytes, 3U << 20);
}

}  // namespace
}  // namespace penstock::testing
