#include "bench/pool_replay.h"

#include "bench/pool_shapes.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

namespace penstock {
namespace {

PoolTrace parsed(const std::string& events) {
    std::istringstream in("penstock pool trace 1\nbudget 1000000\nuse 40960 a\nuse 8192 b\n" + events);
    return parse_pool_trace(in, "test");
}

MachineMemory roomy() {
    return {.available_bytes = 1ULL << 40, .limited_by = "free RAM"};
}

ReplayAccount account_of(const PoolTrace& trace) {
    const Replay replay(trace);
    PinnedPool pool(replay.budget(), roomy(), {});
    return replay.account(pool);
}

TEST(PoolReplay, CountsWhatIsAskedByArithmetic) {
    const TraceDemand demand = demand_of(parsed("g 0 5000 1\nx 0 50000\ng 1 3 2\nr 1\ng 0 4097 1\n"));
    EXPECT_EQ(demand.leases, 3U);
    EXPECT_EQ(demand.requested_bytes, 5000U + 3 + 4097);
    EXPECT_EQ(demand.peak_requested_bytes, 5003U);
    EXPECT_EQ(demand.refused, 1U);
    EXPECT_EQ(demand.power_of_two_bytes, 8192U + 4 + 8192);
    EXPECT_EQ(demand.peak_power_of_two_bytes, 8192U + 4);
}

TEST(PoolReplay, AccountsForWhatThePoolGrants) {
    const ReplayAccount account = account_of(parsed("g 0 5000 1\ng 1 3 2\nr 1\ng 0 4097 3\nr 3\n"));
    EXPECT_EQ(account.requested_bytes, 5000U + 3 + 4097);
    EXPECT_EQ(account.granted_bytes, 8192U + 4096 + 8192);
    EXPECT_EQ(account.peak_requested_bytes, 5003U);
    EXPECT_EQ(account.peak_granted_bytes, 8192U + 4096);
    EXPECT_EQ(account.use_peak_bytes, 8192U + 4096);
    EXPECT_EQ(account.reach_bytes, 8192U + 4096);
    EXPECT_EQ(account.refused, 0U);
    EXPECT_EQ(account.peak_parked_bytes, 0U);
    EXPECT_EQ(account.worst_fragmentation, 0);
}

TEST(PoolReplay, ParksWhatWasDroppedUntilItIsReturned) {
    const ReplayAccount parked = account_of(parsed("g 0 5000 1\ng 0 4096 2\nd 1\nd 2\nr 1\nr 2\n"));
    EXPECT_EQ(parked.peak_parked_bytes, 8192U + 4096);
    // What is parked is not free: the next lease lies behind it.
    EXPECT_EQ(account_of(parsed("g 0 4096 1\nd 1\ng 0 4096 2\n")).reach_bytes, 8192U);
    EXPECT_EQ(account_of(parsed("g 0 4096 1\nr 1\ng 0 4096 2\n")).reach_bytes, 4096U);
}

// Ten granules; every second one is given back, so no two that are free touch.
TEST(PoolReplay, SeesHolesAndTheRequestsTheyRefuse) {
    std::string events;
    for (int i = 0; i < 10; ++i) events += "g 0 4096 " + std::to_string(i) + "\n";
    for (int i = 0; i < 10; i += 2) events += "r " + std::to_string(i) + "\n";
    const ReplayAccount account = account_of(parsed(events + "g 0 8192 20\ng 0 32768 21\nd 20\nr 20\nr 21\n"));
    EXPECT_EQ(account.refused, 2U);
    EXPECT_EQ(account.refused_fragmented, 1U);
    EXPECT_DOUBLE_EQ(account.worst_fragmentation, 0.8);
    EXPECT_EQ(account.worst_free_bytes, 5U * 4096);
    EXPECT_EQ(account.granted_bytes, 10U * 4096) << "refused requests count nowhere else";
}

TEST(PoolReplay, TimesEveryGrantAndReturnAndLeavesThePoolEmpty) {
    const PoolTrace trace = parsed("g 0 5000 1\ng 0 1 2\nx 0 1\nd 2\nr 2\ng 1 1 3\n");
    const Replay replay(trace);
    PinnedPool pool(replay.budget(), roomy(), {});
    for (int round = 0; round < 3; ++round) {
        const ReplayTimes times = replay.times(pool);
        EXPECT_EQ(times.grant_ns.size(), 3U);
        EXPECT_EQ(times.return_ns.size(), 1U);
        EXPECT_EQ(pool.in_use_bytes(), 0U);
    }
}

TEST(PoolReplay, GivesTheSameAccountTwiceAndFitsWhatWasGenerated) {
    const PoolTrace trace = tensor_swap_trace({.layers = 6, .hidden = 96, .vocabulary = 1001, .context = 64});
    const ReplayAccount first = account_of(trace);
    const ReplayAccount second = account_of(trace);
    EXPECT_EQ(first.refused, 0U);
    EXPECT_GT(first.peak_parked_bytes, 0U);
    EXPECT_EQ(first.granted_bytes, second.granted_bytes);
    EXPECT_EQ(first.reach_bytes, second.reach_bytes);
    EXPECT_EQ(first.worst_fragmentation, second.worst_fragmentation);
    EXPECT_EQ(first.requested_bytes, demand_of(trace).requested_bytes);
    EXPECT_EQ(first.peak_requested_bytes, demand_of(trace).peak_requested_bytes);
}

}  // namespace
}  // namespace penstock
