// Generations are copied while the driver goes on with passes, updates and commits.
#include "swap/directory/snapshot_list.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

class DriverSnapshot : public ::testing::TestWithParam<zero::Residency> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    std::string kept(const std::string& name) const { return path() + "/kept/" + name; }
    RigOptions options() const { return {.residency = GetParam(), .snapshots = true}; }

    static void step(DriverRig& rig, std::uint64_t number) {
        rig.update(number);
        rig.driver().commit({{"step", std::to_string(number)}});
    }
    static void finish(DriverRig& rig) {
        rig.driver().finish_snapshot([](const zero::SnapshotProgress&) { return true; });
    }
    const TemporaryDirectory parent_;
};

TEST_P(DriverSnapshot, ACopyIsTheGenerationAtItsBeginningWhateverFollows) {
    DriverRig rig(path(), options());
    step(rig, 1);
    EXPECT_FALSE(rig.driver().snapshot_progress().under_way);
    rig.driver().begin_snapshot(kept("one"));
    EXPECT_TRUE(rig.driver().snapshot_progress().under_way || !rig.driver().take_snapshots().empty());
    for (std::uint64_t number = 2; number <= 6; ++number) {
        step(rig, number);
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, number), 0U);
    }
    finish(rig);
    EXPECT_FALSE(rig.driver().snapshot_progress().under_way);
    rig.driver().take_snapshots();
    rig.driver().begin_snapshot(kept("six"));
    finish(rig);
    const std::vector<zero::EndedSnapshot> ended = rig.driver().take_snapshots();
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].path, kept("six"));
    EXPECT_EQ(ended[0].problem.value_or(""), "");
    const store::Manifest kept_last = store::list_snapshots(path() + "/kept").back().manifest.value();
    EXPECT_EQ(ended[0].bytes == 0, kept_last.hashed_as == store::HashedAs::origin);
    rig.end_driver();
    EXPECT_EQ(rig.wrong_in_snapshot(kept("one"), 1), 0U);
    EXPECT_EQ(rig.wrong_in_snapshot(kept("six"), 6), 0U);
}

TEST_P(DriverSnapshot, ACopyThatCannotBeMadeIsToldAndTrainingGoesOn) {
    DriverRig rig(path(), options());
    step(rig, 1);
    rig.driver().begin_snapshot("/proc/nowhere/one");
    finish(rig);
    const std::vector<zero::EndedSnapshot> ended = rig.driver().take_snapshots();
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].path, "/proc/nowhere/one");
    EXPECT_TRUE(ended[0].problem);
    step(rig, 2);
    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 2), 0U);
}

TEST_P(DriverSnapshot, ACopyThatIsNotWantedAnyMoreEndsEarlyAndIsNoSnapshot) {
    DriverRig rig(path(), options());
    step(rig, 1);
    int asked = 0;
    rig.driver().begin_snapshot(kept("one"));
    rig.driver().finish_snapshot([&](const zero::SnapshotProgress&) { return ++asked < 1; });
    const std::vector<zero::EndedSnapshot> ended = rig.driver().take_snapshots();
    ASSERT_EQ(ended.size(), 1U);
    const std::vector<store::ListedSnapshot> snapshots = store::list_snapshots(path() + "/kept");
    ASSERT_EQ(snapshots.size(), 1U);
    EXPECT_EQ(snapshots[0].manifest.has_value(), !ended[0].problem) << "it may have been faster than the question";
    step(rig, 2);
}

TEST_P(DriverSnapshot, ADriverThatEndsWithinACopyEndsTheCopy) {
    {
        DriverRig rig(path(), options());
        step(rig, 1);
        rig.driver().begin_snapshot(kept("one"));
    }
    DriverRig rig(path(), options());
    rig.driver().begin_snapshot(kept("one"));  // what is left of the first is no obstacle
    finish(rig);
    for (const zero::EndedSnapshot& copy : rig.driver().take_snapshots()) {
        // Refused where the first life was quick enough to complete it.
        EXPECT_TRUE(!copy.problem || copy.problem->find("committed") != std::string::npos) << *copy.problem;
    }
    EXPECT_EQ(store::list_snapshots(path() + "/kept").size(), 1U);
}

TEST_P(DriverSnapshot, ACopyBeginsBetweenStepsOnly) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            DriverRig rig(path(), options());
            rig.begin_update();
            rig.driver().begin_snapshot(kept("one"));
        },
        "begins within a pass or an update");
}

TEST(SnapshotMemory, IsTwoOfTheLongestExtentsAndPlannedOnlyWhereCopiesAre) {
    const zero::ModelLayout layout({.units = {{"short", {{"a", {5000}}}}, {"long", {{"a", {100, 1000}}}}},
                                    .format = {&zero::split_codec(), 2},  // 2 and 10 bytes per element
                                    .optimizers = zero::make_adamw({}),
                                    .tile_numel = 8192});
    EXPECT_EQ(zero::snapshot_bytes(layout), 2 * 8192U * 10);
    zero::MemoryRequest request{.layout = &layout, .host_budget_bytes = 64 << 20};
    for (const std::uint32_t unit : {0U, 1U}) {
        request.training.push_back({{unit}});
        request.inference.push_back({{unit}});
    }
    const auto planned = [&] {
        std::uint64_t bytes = 0;
        const zero::MemoryPlan plan = plan_memory(request, {});
        for (const pool::Use& use : plan.budget.uses()) bytes += use.name == zero::snapshot_use ? use.bytes : 0;
        return bytes;
    };
    EXPECT_EQ(planned(), 0U);
    request.snapshots = true;
    EXPECT_EQ(planned(), zero::snapshot_bytes(layout));
}

INSTANTIATE_TEST_SUITE_P(Residencies, DriverSnapshot,
                         ::testing::Values(zero::Residency{zero::Tier::nvme, zero::Tier::nvme},
                                           zero::Residency{zero::Tier::host, zero::Tier::host}),
                         [](const auto& instance) {
                             return std::string(instance.param.weights == zero::Tier::host ? "host" : "nvme");
                         });

}  // namespace
}  // namespace penstock::testing
