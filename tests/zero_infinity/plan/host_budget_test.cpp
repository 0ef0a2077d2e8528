// How the budget of host memory is divided, before there is a pool.
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/session/session_client.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::testing {
namespace {

zero::SessionPlan plan(const zero::PassVisits& visits, std::uint32_t depth = 0,
                       zero::UpdateOrder order = zero::UpdateOrder::after_backward,
                       std::uint64_t budget_bytes = zero::planned_host_budget) {
    zero::CoreOptions options;
    options.tile_numel = 4096;
    options.host_budget_bytes = budget_bytes;
    options.prefetch_depth = depth;
    options.update_order = order;
    return {{.units = units(), .optimizers = zero::make_adamw({}), .training = visits, .inference = visits},
            options,
            ample_room(),
            {}};
}

// An update takes them where they lie in the window.
TEST(HostBudgetTest, AUnitThatNoPassIsExpectedToVisitFindsRoomToBeUpdated) {
    const zero::SessionPlan smallest = plan({{{4}}});
    std::uint64_t largest = 0;
    for (std::uint32_t unit = 0; unit < smallest.layout.unit_count(); ++unit)
        if (smallest.layout.unit(unit).tile_count() > 0)
            largest = std::max(largest, smallest.layout.gathered(unit).bytes);
    EXPECT_LT(smallest.layout.gathered(4).bytes, largest);
    EXPECT_GE(smallest.memory.window.window_bytes, largest);
}

// What is left beside the window is for states that come while compute is elsewhere.
TEST(HostBudgetTest, ADeferredUpdateTakesMoreStagingWhereThereIsRoom) {
    const zero::PassVisits visits{{{0}}, {{1}}, {{2}}, {{3}}, {{4}}, {{3}}, {{2}}, {{1}}, {{0}}};
    const auto deferred = [&](std::uint64_t bytes) {
        return plan(visits, 2, zero::UpdateOrder::deferred, bytes).memory;
    };
    const zero::MemoryPlan least = plan(visits, 2).memory;
    const zero::MemoryPlan most = deferred(zero::planned_host_budget);
    EXPECT_EQ(least.staging_tiles, 4U);
    EXPECT_GE(most.staging_tiles, 4U + 2);
    EXPECT_EQ(deferred(4 * most.budget.used_bytes()).staging_tiles, most.staging_tiles);
    std::uint32_t tiles = 4;
    for (std::uint64_t bytes = least.budget.used_bytes(); bytes <= most.budget.used_bytes(); bytes += 4096) {
        const zero::MemoryPlan plan = deferred(bytes);
        ASSERT_LE(plan.budget.used_bytes(), bytes);
        ASSERT_EQ(plan.window.depth, least.window.depth);
        ASSERT_GE(plan.staging_tiles, tiles);
        tiles = plan.staging_tiles;
    }
    EXPECT_EQ(tiles, most.staging_tiles);
}

}  // namespace
}  // namespace penstock::testing
