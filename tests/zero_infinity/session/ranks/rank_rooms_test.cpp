// What the ranks of one machine have together: its memory as a budget, its drives.
#include "tests/swap/directory/mounts.h"
#include "tests/zero_infinity/session/ranks/rank_lives.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

namespace penstock::testing {
namespace {

using RankRoomTest = RankSetTest;

zero::SessionPlan plan_of_rank(const std::string& path, const Setting& setting, std::uint32_t sharing) {
    zero::MachineRoom room = ample_room();
    room.sharing = sharing;
    return {
        {.units = units(setting.unused), .optimizers = optimizers(setting)}, core_options(path, setting), room, {0, 2}};
}

TEST_F(RankRoomTest, ABudgetIsTheMachinesAndItsRanksDivideIt) {
    course_.setting.host_budget = 64 << 20;
    std::vector<std::string> notes(2);
    EXPECT_EQ(live(1, 2,
                   [&](Client& client, std::uint32_t rank) {
                       const zero::SessionInfo& info = client.session().info();
                       EXPECT_EQ(info.pool_budget_bytes, 32U << 20);
                       for (const std::string& note : client.session().take_notes()) notes[rank] += note + "\n";
                   }),
              nothing);
    for (const std::string& each : notes)
        EXPECT_NE(each.find("is 64MiB for the 2 ranks of this machine: 32.0 MiB of each"), std::string::npos) << each;
}

TEST_F(RankRoomTest, WhatALimitIsDividedByIsSaidWhereItIsTooSmall) {
    course_.setting.host_budget = plan_of_rank(run(), course_.setting, 1).memory.budget.used_bytes();
    const auto thrown = live(1, 1);
    for (const std::string& each : thrown)
        EXPECT_NE(each.find("which 2 ranks of a machine divide"), std::string::npos) << each;
    EXPECT_FALSE(std::filesystem::exists(run()));
    course_.setting.host_budget *= 2;
    EXPECT_EQ(live(1, 1), nothing);
}

TEST_F(RankRoomTest, RanksPutNoMoreInFlightTogetherThanOneAlone) {
    const auto limits = [&](std::uint32_t sharing) { return plan_of_rank(run(), course_.setting, sharing).options.io; };
    EXPECT_EQ(limits(4).in_flight.read_bytes,
              std::max<std::uint64_t>(limits(1).in_flight.read_bytes / 4, std::uint64_t{2} * limits(1).chunk_bytes));
    EXPECT_LT(limits(4).in_flight.write_bytes, limits(1).in_flight.write_bytes);
}

TEST_F(RankRoomTest, StoresThatDoNotFitTogetherAreRefusedAndNothingIsMade) {
    const std::uint64_t store = plan_of_rank(run(), course_.setting, 2).store_bytes();
    std::filesystem::create_directory(run());
    const MountOutcome outcome =
        run_with_mounts([&] { return mount_tmpfs(run(), store * 3 / 2); },
                        [&] {
                            const std::vector<std::string> thrown = live(1, 1);
                            return fmt::format("{}|{}|{}", thrown[0] == thrown[1] ? "alike" : "other words", thrown[0],
                                               std::filesystem::is_empty(run()) ? "nothing made" : "something made");
                        });
    if (!outcome.allowed) GTEST_SKIP() << "nobody may mount here";
    EXPECT_TRUE(outcome.text.starts_with("alike|the stores of 2 ranks on ")) << outcome.text;
    EXPECT_TRUE(outcome.text.ends_with("|nothing made")) << outcome.text;
}

}  // namespace
}  // namespace penstock::testing
