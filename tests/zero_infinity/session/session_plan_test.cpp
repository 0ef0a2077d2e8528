#include "zero_infinity/session/session_plan.h"

#include "zero_infinity/optimizer/optimizers.h"

#include <gtest/gtest.h>

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
    for (const UpdateOrder order : {UpdateOrder::balanced, UpdateOrder::deferred}) {
        for (const GradientMemory gradients : {GradientMemory::all_units, GradientMemory::nvme}) {
            options.update_order = order;
            options.gradient_memory = gradients;
            const Traffic traffic = SessionPlan(model, options, Partition{}).nominal_traffic();
            EXPECT_TRUE(std::isfinite(traffic.total()));
            if (gradients == GradientMemory::nvme) {
                EXPECT_EQ(traffic.total(), 0);
            }
        }
    }
}

}  // namespace
}  // namespace penstock::zero
