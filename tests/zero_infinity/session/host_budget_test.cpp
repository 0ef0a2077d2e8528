// How the budget of host memory is divided, before there is a pool.
#include "tests/zero_infinity/session/session_client.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace penstock::testing {
namespace {

zero::SessionPlan plan(const zero::PassVisits& visits) {
    zero::CoreOptions options;
    options.tile_numel = 4096;
    options.host_budget_bytes = zero::planned_host_budget;
    options.prefetch_depth = 0;
    return {
        {.units = units(), .optimizers = zero::make_adamw({}), .training = visits, .inference = visits}, options, {}};
}

// An update takes them where they lie in the window.
TEST(HostBudgetTest, AUnitThatNoPassIsExpectedToVisitFindsRoomToBeUpdated) {
    const zero::SessionPlan smallest = plan({{{4}}});
    std::uint64_t largest = 0;
    for (std::uint32_t unit = 0; unit < smallest.layout.unit_count(); ++unit)
        if (smallest.layout.unit(unit).tile_count() > 0)
            largest = std::max(largest, pool::whole_granules(smallest.layout.group_bytes(unit)));
    EXPECT_LT(smallest.layout.group_bytes(4), largest);
    EXPECT_GE(smallest.memory.window.window_bytes, largest);
}

}  // namespace
}  // namespace penstock::testing
