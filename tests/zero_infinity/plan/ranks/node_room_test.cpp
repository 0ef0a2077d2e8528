#include "zero_infinity/plan/ranks/node_room.h"

#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "zero_infinity/ranks/collectives.h"
#include "zero_infinity/session/session_parts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

constexpr std::uint64_t gib = 1ULL << 30;

// A machine of that boot, whose files lie beneath a directory of the test's.
zero::RankRoom room(const std::string& boot, std::uint64_t wants, std::uint64_t has, const char* limit = "free RAM") {
    const TemporaryDirectory root;
    const std::string place = root.path() + "/proc/sys/kernel/random";
    std::filesystem::create_directories(place);
    if (!boot.empty()) std::ofstream(place + "/boot_id") << boot << "\n";
    return zero::RankRoom::read(wants, {.available_bytes = has, .limited_by = limit}, root.path());
}

std::string lacking(const std::vector<zero::RankRoom>& of_ranks) {
    return zero::lacking_room(of_ranks, "memory.host_budget");
}

TEST(NodeRoom, EightThatFitAloneAndNotTogetherAreRefused) {
    const std::vector<zero::RankRoom> eight(8, room("one", 3 * gib, 16 * gib));
    const std::string table = lacking(eight);
    for (const char* words : {"the 8 ranks on ", "do not fit together", "rank 0", "rank 7", "3.00 GiB", "24.00 GiB",
                              "16.00 GiB (free RAM)", "less by memory.host_budget"})
        EXPECT_NE(table.find(words), std::string::npos) << words << " is not in:\n" << table;
    EXPECT_EQ(lacking({eight.begin(), eight.begin() + 5}), "") << "15 of 16";
    EXPECT_EQ(lacking({eight.begin(), eight.begin() + 1}), "") << "one alone is its budget's affair";
}

TEST(NodeRoom, ANodeIsAKernelAndWhatLimitsItsMemory) {
    const auto two = [](const zero::RankRoom& one, const zero::RankRoom& other) { return lacking({one, other}); };
    const zero::RankRoom here = room("one", 10 * gib, 16 * gib);
    EXPECT_NE(two(here, here), "");
    EXPECT_EQ(two(here, room("two", 10 * gib, 16 * gib)), "") << "another machine";
    EXPECT_EQ(two(here, room("one", 10 * gib, 16 * gib, "cgroup limit /a")), "") << "another group's limit";
    EXPECT_EQ(two(room("", 10 * gib, 16 * gib), room("", 10 * gib, 16 * gib)), "") << "nobody knows";
    EXPECT_NE(two(room("one", 6 * gib, 16 * gib), room("one", 6 * gib, 11 * gib)), "")
        << "the least that one of them saw";
}

TEST(NodeRoom, WhoSharesItKnowsHowManyDoAndWhatTheLeastOfThemSaw) {
    const std::vector<zero::RankRoom> all = {room("one", 0, 7 * gib), room("two", 0, 3 * gib), room("one", 0, 5 * gib),
                                             room("", 0, 9 * gib)};
    for (const std::uint32_t rank : {0U, 2U}) {
        EXPECT_EQ(zero::node_of(all, rank).ranks, 2U);
        EXPECT_EQ(zero::node_of(all, rank).available_bytes, 5 * gib);
    }
    EXPECT_EQ(zero::node_of(all, 1).ranks, 1U);
    EXPECT_EQ(zero::node_of(all, 3).available_bytes, 9 * gib);
}

TEST(NodeRoom, RanksOfOneMachineHaveItTogether) {
    ThreadRanks world(3);
    run_ranks(3, [&](std::uint32_t rank) {
        zero::Collectives all(world.of(rank));
        zero::MachineRoom given;
        given.host = {.available_bytes = (4 + rank) * gib, .limited_by = "free RAM"};
        const zero::MachineRoom own = zero::room_of_rank(all, given);
        EXPECT_EQ(own.sharing, 3U);
        EXPECT_EQ(own.host.available_bytes, 4 * gib) << "alike, so that all fill as much";
    });
}

TEST(NodeRoom, AllRanksAreTold) {
    ThreadRanks world(3);
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        zero::Collectives all(world.of(rank));
        zero::check_nodes(all, room("one", (rank + 1) * gib, 5 * gib), "a budget");
    });
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_EQ(thrown[0], thrown[2]);
    EXPECT_NE(thrown[0].find("the 3 ranks on"), std::string::npos) << thrown[0];
}

}  // namespace
}  // namespace penstock::testing
