#include "zero_infinity/plan/session_plan.h"

#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/update_way.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace penstock::zero {
namespace {

// A mean over no tile is no number.
TEST(PlannedTraffic, OfAModelWithNothingToTrainIsNothing) {
    const ModelSpec model{.units = {{"u", {{.name = "weight", .shape = {40960}, .training = Training::frozen}}}},
                          .optimizers = make_adamw({})};
    CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.tile_numel = 4096;
    options.gradient_type = PlaneType::fp32;
    options.host_budget_bytes = planned_host_budget;
    for (const UpdateWay order : {UpdateWay::balanced, UpdateWay::deferred}) {
        for (const GradientMemory gradients : {GradientMemory::all_units, GradientMemory::nvme}) {
            update_by(order, options);
            options.gradient_memory = gradients;
            const Traffic traffic = SessionPlan(model, options, testing::ample_room(), Partition{}).nominal_traffic();
            EXPECT_TRUE(std::isfinite(traffic.total()));
            if (gradients == GradientMemory::nvme) {
                EXPECT_EQ(traffic.total(), 0);
            }
        }
    }
}

// Copies of what host memory alone has are written from there.
TEST(PlannedMemory, ForSnapshotsIsTakenWhereTheStoreHasTiles) {
    const ModelSpec model{.units = {{"u", {{.name = "weight", .shape = {40960}}}}}, .optimizers = make_adamw({})};
    CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.tile_numel = 4096;
    options.host_budget_bytes = planned_host_budget;
    options.snapshots = true;
    const auto keeps = [&] {
        const SessionPlan plan(model, options, testing::ample_room(), Partition{});
        return std::ranges::any_of(plan.memory.budget.uses(),
                                   [](const pool::Use& use) { return use.name == snapshot_use && use.bytes > 0; });
    };
    for (const Tier states : {Tier::host, Tier::nvme}) {
        options.residency = {.weights = Tier::host, .states = states};
        options.durability = {};
        EXPECT_TRUE(keeps());
        options.durability = Durability::scratch;
        EXPECT_EQ(keeps(), states == Tier::nvme);
    }
}

}  // namespace
}  // namespace penstock::zero
