// A driver that has a shard of each unit: tiles come and go as the rank's own, compute reads what is gathered of all.
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::DeviceKind;
using zero::Residency;
using zero::Tier;

class GatheredDriverTest : public ::testing::TestWithParam<zero::Partition> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    static RigOptions rig(Residency residency, DeviceKind device, std::uint32_t depth = 2) {
        return {.partition = GetParam(), .depth = depth, .residency = residency, .device = device};
    }

   private:
    const TemporaryDirectory parent_;
};

constexpr DeviceKind devices[] = {DeviceKind::cpu, DeviceKind::emulated};
constexpr Residency residencies[] = {{}, {Tier::host, Tier::nvme}, {Tier::host, Tier::host}};

TEST_P(GatheredDriverTest, EveryVisitSeesTheNewestWeightsOfAllRanks) {
    std::uint64_t updates = 0;
    for (const DeviceKind device : devices)
        for (const Residency residency : residencies)
            for (const std::uint32_t depth : {0U, 2U, 7U}) {
                DriverRig rig(path(), GatheredDriverTest::rig(residency, device, depth));
                for (int step = 0; step < 2; ++step) {
                    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, updates), 0U) << "depth " << depth;
                    rig.update(updates + 1);
                    rig.driver().commit({{"step", std::to_string(++updates)}});
                    EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, updates), 0U) << "depth " << depth;
                }
                rig.end_driver();
                EXPECT_EQ(rig.wrong_in_store(updates), 0U);
            }
}

// Of units that are resident by themselves, too, which are gathered anew once they were updated.
TEST_P(GatheredDriverTest, AResidentUnitIsWhereItWasAndNew) {
    std::uint64_t updates = 0;
    for (const DeviceKind device : devices)
        for (const Residency residency : residencies) {
            RigOptions options = GatheredDriverTest::rig(residency, device);
            options.with_resident = true;
            DriverRig rig(path(), options);
            EXPECT_EQ(rig.wrong_weights(zero::Pass::training, updates), 0U);
            const std::byte* place = rig.driver().memory(1).weights;
            rig.update(updates + 1);
            rig.driver().commit({{"step", std::to_string(++updates)}});
            EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, updates), 0U);
            EXPECT_EQ(rig.driver().memory(1).weights, place);
            rig.end_driver();
            EXPECT_EQ(rig.wrong_in_store(updates), 0U);
        }
}

// As deferred units are, and as those are that backward has left.
TEST_P(GatheredDriverTest, AnyPassThatIsUpdatedWithinSeesTheNewestWeights) {
    std::mt19937_64 random(11);
    for (const zero::UpdateAt at : {zero::UpdateAt::arrival, zero::UpdateAt::departure})
        for (const DeviceKind device : devices)
            for (const Residency residency : residencies) {
                std::filesystem::remove_all(path());
                DriverRig rig(path(), GatheredDriverTest::rig(residency, device, 1));
                zero::Driver& driver = rig.driver();
                std::vector<std::uint32_t> order = zero::in_order_of_visits(rig.layout(), {});
                constexpr std::uint64_t updates = 16;
                for (std::uint64_t update = 1; update <= updates; ++update) {
                    std::vector<zero::Visit> visits;
                    for (std::uint64_t count = 2 + random() % 8; count > 0; --count)
                        visits.push_back({{static_cast<std::uint32_t>(random() % rig.layout().unit_count())}});
                    std::shuffle(order.begin(), order.end(), random);
                    if (at == zero::UpdateAt::arrival) driver.begin_update(order, zero::ResidentTiles::written, at);
                    driver.visit({}, visits);
                    if (at == zero::UpdateAt::departure) driver.begin_update(order, zero::ResidentTiles::written, at);
                    std::span<const zero::Visit> ahead = visits;
                    for (const zero::Visit& visit : visits) {
                        ahead = ahead.subspan(1);
                        const std::uint32_t unit = visit.units[0];
                        const bool awaits = driver.awaits_update(unit);
                        if (at == zero::UpdateAt::arrival && awaits) {
                            driver.visit(visit, ahead);
                            rig.update_unit(unit, update);
                        }
                        const bool old = at == zero::UpdateAt::departure && awaits;
                        EXPECT_EQ(rig.wrong_weights(visit, ahead, update - (old ? 1 : 0)), 0U) << "update " << update;
                        if (old && random() % 3 > 0) rig.update_unit(unit, update);
                    }
                    driver.end_pass();
                    while (const auto unit = driver.next_awaiting()) rig.update_unit(*unit, update);
                    driver.end_update();
                }
                driver.commit({{"step", std::to_string(updates)}});
                rig.end_driver();
                EXPECT_EQ(rig.wrong_in_store(updates), 0U);
            }
}

// To the byte: a rank reads and writes its own shards, padded to granules, and nothing of the others'.
TEST_P(GatheredDriverTest, MovesTheBytesOfItsShards) {
    DriverRig rig(path(), GatheredDriverTest::rig({}, DeviceKind::cpu));
    const zero::ModelLayout& layout = rig.layout();
    std::uint64_t weights = layout.shard(0).bytes, states = 0;  // to which the last unit is tied: it comes twice
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        weights += layout.shard(unit).bytes;
        states += layout.memory_bytes(layout.objects(unit).states);
    }
    const auto read_bytes = [&] { return rig.io().statistics().total_read_bytes(); };
    std::uint64_t before = read_bytes();
    EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, 0), 0U);
    EXPECT_EQ(read_bytes() - before, weights);
    before = read_bytes();
    rig.update(1);
    rig.driver().commit({{"step", "1"}});
    std::uint64_t trainable = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        trainable += layout.memory_bytes(layout.objects(unit).weights);
    EXPECT_LE(read_bytes() - before, states + trainable);
    EXPECT_GE(read_bytes() - before, states);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GatheredDriverTest,
                         ::testing::Values(zero::Partition{0, 2}, zero::Partition{1, 2}, zero::Partition{2, 3},
                                           zero::Partition{0, 64}),
                         [](const auto& each) {
                             return std::to_string(each.param.rank) + "of" + std::to_string(each.param.ranks);
                         });

}  // namespace
}  // namespace penstock::testing
