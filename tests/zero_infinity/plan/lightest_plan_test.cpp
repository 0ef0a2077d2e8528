#include "zero_infinity/plan/lightest_plan.h"

#include "tests/zero_infinity/ample_room.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace penstock::zero {
namespace {

ModelSpec chain(int count) {
    ModelSpec model{.units = {}, .optimizers = make_adamw({})};
    for (int i = 0; i < count; ++i)
        model.units.push_back({fmt::format("u{}", i), {{.name = "weight", .shape = {40960}}}});
    return model;
}

CoreOptions generous() {
    CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.tile_numel = 4096;
    options.prefetch_depth = 3;
    options.gradient_type = PlaneType::fp32;
    options.residency = {Tier::host, Tier::host};
    return options;
}

std::uint64_t needed(const ModelSpec& model, CoreOptions options) {
    options.host_budget_bytes = planned_host_budget;
    return SessionPlan(model, options, testing::ample_room(), Partition{}).memory.budget.used_bytes();
}

TEST(LightestPlan, ChangesNoMoreThanItMust) {
    const ModelSpec model = chain(6);
    CoreOptions options = generous();
    options.host_budget_bytes = needed(model, options);
    EXPECT_TRUE(lightest_plan(model, options, testing::ample_room(), Partition{}, 0)->changes.empty());
    CoreOptions lighter = options;
    lighter.prefetch_depth = 1;
    lighter.staging_tiles = 2;
    lighter.residency.states = Tier::nvme;
    options.host_budget_bytes = needed(model, lighter);
    const auto lightest = lightest_plan(model, options, testing::ample_room(), Partition{}, 0);
    ASSERT_TRUE(lightest);
    EXPECT_EQ(lightest->changes,
              (std::vector{Lightening::prefetch_one, Lightening::staging_two, Lightening::states_on_nvme}));
    EXPECT_EQ(lightest->pool_bytes, options.host_budget_bytes);
}

TEST(LightestPlan, WhereNothingIsEnoughItIsAllThatThereIs) {
    CoreOptions options = generous();
    options.host_budget_bytes = 4096;
    const auto all = lightest_plan(chain(6), options, testing::ample_room(), Partition{}, 0);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->changes.size(), 6U);
    EXPECT_GT(all->pool_bytes, 4096U);
    const auto with_prefetch = lightest_plan(chain(6), options, testing::ample_room(), Partition{}, 1);
    ASSERT_TRUE(with_prefetch);
    EXPECT_EQ(with_prefetch->changes.size(), 5U);
    EXPECT_GT(with_prefetch->pool_bytes, all->pool_bytes);
}

TEST(LightestPlan, ABudgetThatWasToBeFilledIsNamed) {
    CoreOptions options = generous();
    options.residency = {Tier::nvme, Tier::nvme};
    options.fill_host_budget = true;
    options.host_budget_bytes = 4096;
    const auto lightest = lightest_plan(chain(6), options, testing::ample_room(), Partition{}, 0);
    ASSERT_TRUE(lightest);
    options.host_budget_bytes = lightest->pool_bytes;
    for (const Lightening change : lightest->changes) {
        if (change == Lightening::prefetch_one) options.prefetch_depth = 1;
        if (change == Lightening::staging_two) options.staging_tiles = 2;
        if (change == Lightening::no_prefetch) options.prefetch_depth = 0;
        if (change == Lightening::gradients_bf16) options.gradient_type = PlaneType::bf16;
    }
    EXPECT_EQ(SessionPlan(chain(6), options, testing::ample_room(), Partition{}).options.fill_host_budget, true);
}

TEST(LightestPlan, OfWhatNoMachineHasThereIsNone) {
    ModelSpec model = chain(1);
    model.units.front().parameters.front().shape = {1LL << 45};
    CoreOptions options = generous();
    options.tile_numel = 1ULL << 30;
    options.host_budget_bytes = 4096;
    MachineRoom room = testing::ample_room();
    room.host.available_bytes = 1ULL << 40;
    EXPECT_FALSE(lightest_plan(model, options, room, Partition{}, 0));
}

}  // namespace
}  // namespace penstock::zero
