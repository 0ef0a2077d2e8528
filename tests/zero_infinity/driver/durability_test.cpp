// What the driver writes and commits when not every step is to be durable.
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

constexpr zero::Residency residencies[] = {{zero::Tier::nvme, zero::Tier::nvme},
                                           {zero::Tier::host, zero::Tier::nvme},
                                           {zero::Tier::nvme, zero::Tier::host},
                                           {zero::Tier::host, zero::Tier::host}};

class DurabilityTest : public ::testing::TestWithParam<zero::Residency> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    RigOptions options() const { return {.residency = GetParam()}; }

    // Steps up to `last`, of which those that `every` divides are committed; looks at every weight after each.
    static void train(DriverRig& rig, std::uint64_t last, std::uint64_t every) {
        for (std::uint64_t step = 1; step <= last; ++step) {
            rig.update(step, step % every == 0 ? zero::ResidentTiles::written : zero::ResidentTiles::held_back);
            if (step % every == 0)
                rig.driver().commit({{"step", std::to_string(step)}});
            else
                rig.driver().end_update();
            ASSERT_EQ(rig.wrong_weights(step % 2 == 0 ? zero::Pass::training : zero::Pass::inference, step), 0U)
                << step;
        }
    }

    const TemporaryDirectory parent_;
};

TEST_P(DurabilityTest, OnlyCommittedStepsAreThereAfterwardsAndTheyAreWhole) {
    {
        DriverRig rig(path(), options());
        train(rig, 8, 3);
    }
    DriverRig rig(path(), options());
    EXPECT_EQ(rig.store().client().at("step"), "6");
    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 6), 0U);
    rig.end_driver();
    EXPECT_EQ(rig.wrong_in_store(6), 0U);
}

TEST_P(DurabilityTest, ACommitOutOfTurnWritesWhatWasHeldBack) {
    {
        DriverRig rig(path(), options());
        train(rig, 5, 100);
        rig.driver().commit({{"step", "5"}});
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 5), 0U);
        rig.update(6);
        rig.driver().commit({{"step", "6"}});
        rig.update(7, zero::ResidentTiles::held_back);
        rig.driver().commit({{"step", "7"}});  // without end_update()
    }
    DriverRig rig(path(), options());
    EXPECT_EQ(rig.store().client().at("step"), "7");
    rig.end_driver();
    EXPECT_EQ(rig.wrong_in_store(7), 0U);
}

// Bytes of the extents of all units' weights and states that are in `tier`.
std::uint64_t extents_in(DriverRig& rig, zero::Residency residency, zero::Tier tier) {
    std::uint64_t bytes = 0;
    const auto add = [&](std::uint32_t object) {
        for (std::uint32_t tile = 0; tile < rig.store().layout().tile_count(object); ++tile)
            bytes += rig.store().extent_bytes({object, tile});
    };
    for (std::uint32_t index = 0; index < rig.layout().unit_count(); ++index) {
        const zero::UnitObjects& unit = rig.layout().objects(index);
        if (unit.weights && residency.weights == tier) add(*unit.weights);
        if (unit.states && residency.states == tier) add(*unit.states);
    }
    return bytes;
}

TEST_P(DurabilityTest, AStepWithoutCommitWritesWhatIsOnNvmeAloneAndDoesNotFlush) {
    DriverRig rig(path(), options());
    rig.faults.fails_flush = true;
    const std::uint64_t before = rig.io().statistics().total_write_bytes();
    rig.update(1, zero::ResidentTiles::held_back);
    rig.driver().end_update();
    EXPECT_EQ(rig.io().statistics().total_write_bytes() - before, extents_in(rig, GetParam(), zero::Tier::nvme));
    rig.faults.fails_flush = false;
    rig.driver().commit({{"step", "1"}});
    const std::uint64_t both =
        extents_in(rig, GetParam(), zero::Tier::nvme) + extents_in(rig, GetParam(), zero::Tier::host);
    const std::uint64_t manifest = rig.io().statistics().total_write_bytes() - before - both;
    EXPECT_GT(manifest, 0U);
    EXPECT_LT(manifest, 1U << 16);
    // Nothing is held back any more: a second commit writes its manifest alone.
    const std::uint64_t after = rig.io().statistics().total_write_bytes();
    rig.driver().commit({{"step", "1"}});
    EXPECT_EQ(rig.io().statistics().total_write_bytes() - after, manifest);
}

TEST_P(DurabilityTest, AScratchStoreIsTrainedInAndNothingOfItStays) {
    RigOptions scratch = options();
    scratch.kind = store::StoreKind::scratch;
    for (int life = 0; life < 2; ++life) {
        DriverRig rig(path(), scratch);
        EXPECT_EQ(rig.store().kind(), store::StoreKind::scratch);
        EXPECT_FALSE(rig.store().generation());
        train(rig, 4, 100);
    }
    DriverRig rig(path(), options());
    EXPECT_EQ(rig.store().kind(), store::StoreKind::durable);
    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 0), 0U);
}

TEST_P(DurabilityTest, AnUpdateEndsOnlyWhenAllItsTilesWerePutBack) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            DriverRig rig(path(), options());
            rig.begin_update(zero::ResidentTiles::held_back);
            rig.driver().end_update();
        },
        "an update ends, but unit 0 awaits it");
}

INSTANTIATE_TEST_SUITE_P(Residencies, DurabilityTest, ::testing::ValuesIn(residencies), [](const auto& instance) {
    const auto word = [](zero::Tier tier) { return std::string(tier == zero::Tier::host ? "host" : "nvme"); };
    return "weights_" + word(instance.param.weights) + "_states_" + word(instance.param.states);
});

}  // namespace
}  // namespace penstock::testing
