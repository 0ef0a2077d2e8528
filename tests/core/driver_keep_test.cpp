// Generations are copied while the driver goes on with passes, updates and commits.
#include "swap/kept_list.h"
#include "tests/core/driver_rig.h"
#include "tests/temporary_directory.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

class DriverKeep : public ::testing::TestWithParam<Residency> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    std::string kept(const std::string& name) const { return path() + "/kept/" + name; }
    RigOptions options() const { return {.residency = GetParam(), .keeping = true}; }

    static void step(DriverRig& rig, std::uint64_t number) {
        rig.update(number);
        rig.driver().commit({{"step", std::to_string(number)}});
    }
    static void finish(DriverRig& rig) {
        rig.driver().finish_keep([](const KeepProgress&) { return true; });
    }
    const TemporaryDirectory parent_;
};

TEST_P(DriverKeep, ACopyIsTheGenerationAtItsBeginningWhateverFollows) {
    DriverRig rig(path(), options());
    step(rig, 1);
    EXPECT_FALSE(rig.driver().keep_progress().under_way);
    rig.driver().keep(kept("one"));
    EXPECT_TRUE(rig.driver().keep_progress().under_way || !rig.driver().take_kept().empty());
    for (std::uint64_t number = 2; number <= 6; ++number) {
        step(rig, number);
        EXPECT_EQ(rig.wrong_weights(Pass::training, number), 0U);
    }
    finish(rig);
    EXPECT_FALSE(rig.driver().keep_progress().under_way);
    rig.driver().take_kept();
    rig.driver().keep(kept("six"));
    finish(rig);
    const std::vector<KeptCopy> ended = rig.driver().take_kept();
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].path, kept("six"));
    EXPECT_EQ(ended[0].problem.value_or(""), "");
    EXPECT_GT(ended[0].bytes, 0U);
    rig.end_driver();
    EXPECT_EQ(rig.wrong_in_snapshot(kept("one"), 1), 0U);
    EXPECT_EQ(rig.wrong_in_snapshot(kept("six"), 6), 0U);
}

TEST_P(DriverKeep, ACopyThatCannotBeMadeIsToldAndTrainingGoesOn) {
    DriverRig rig(path(), options());
    step(rig, 1);
    rig.driver().keep("/proc/nowhere/one");
    finish(rig);
    const std::vector<KeptCopy> ended = rig.driver().take_kept();
    ASSERT_EQ(ended.size(), 1U);
    EXPECT_EQ(ended[0].path, "/proc/nowhere/one");
    EXPECT_TRUE(ended[0].problem);
    step(rig, 2);
    EXPECT_EQ(rig.wrong_weights(Pass::training, 2), 0U);
}

TEST_P(DriverKeep, ACopyThatIsNotWantedAnyMoreEndsEarlyAndIsNoSnapshot) {
    DriverRig rig(path(), options());
    step(rig, 1);
    int asked = 0;
    rig.driver().keep(kept("one"));
    rig.driver().finish_keep([&](const KeepProgress&) { return ++asked < 1; });
    const std::vector<KeptCopy> ended = rig.driver().take_kept();
    ASSERT_EQ(ended.size(), 1U);
    const std::vector<KeptSnapshot> snapshots = list_kept(path() + "/kept");
    ASSERT_EQ(snapshots.size(), 1U);
    EXPECT_EQ(snapshots[0].manifest.has_value(), !ended[0].problem) << "it may have been faster than the question";
    step(rig, 2);
}

TEST_P(DriverKeep, ADriverThatEndsWithinACopyEndsTheCopy) {
    {
        DriverRig rig(path(), options());
        step(rig, 1);
        rig.driver().keep(kept("one"));
    }
    DriverRig rig(path(), options());
    rig.driver().keep(kept("one"));  // what is left of the first is no obstacle
    finish(rig);
    for (const KeptCopy& copy : rig.driver().take_kept()) {
        // Refused where the first life was quick enough to complete it.
        EXPECT_TRUE(!copy.problem || copy.problem->find("committed") != std::string::npos) << *copy.problem;
    }
    EXPECT_EQ(list_kept(path() + "/kept").size(), 1U);
}

TEST_P(DriverKeep, ACopyBeginsBetweenStepsOnly) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            DriverRig rig(path(), options());
            rig.driver().begin_update(ResidentParts::written);
            rig.driver().keep(kept("one"));
        },
        "begins within a pass or an update");
}

TEST(KeepMemory, IsTwoOfTheLongestExtentsAndPlannedOnlyWhereCopiesAre) {
    const StateFormat format{&split_codec(), 2};  // 2 and 10 bytes per element
    std::vector<UnitLayout> units;
    units.emplace_back(UnitSpec{"short", {{"a", {5000}}}}, Partition{}, 8192);
    units.emplace_back(UnitSpec{"long", {{"a", {100, 1000}}}}, Partition{}, 8192);
    EXPECT_EQ(keep_bytes(units, format), 2 * 8192U * 10);
    MemoryRequest request{.units = &units, .format = format, .host_budget_bytes = 64 << 20};
    for (const std::uint32_t unit : {0U, 1U}) {
        request.training.push_back({{unit}});
        request.inference.push_back({{unit}});
    }
    const auto planned = [&] {
        std::uint64_t bytes = 0;
        const MemoryPlan plan = plan_memory(request, {});
        for (const Use& use : plan.budget.uses()) bytes += use.name == keep_use ? use.bytes : 0;
        return bytes;
    };
    EXPECT_EQ(planned(), 0U);
    request.keeping = true;
    EXPECT_EQ(planned(), keep_bytes(units, format));
}

INSTANTIATE_TEST_SUITE_P(Residencies, DriverKeep,
                         ::testing::Values(Residency{Tier::nvme, Tier::nvme}, Residency{Tier::host, Tier::host}),
                         [](const auto& instance) {
                             return std::string(instance.param.weights == Tier::host ? "host" : "nvme");
                         });

}  // namespace
}  // namespace penstock::testing
