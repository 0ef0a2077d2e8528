// Tiles of a unit that is updated: one at a time through the driver, or all at once; by compute, or beside it.
#include "zero_infinity/driver/unit_in_hand.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <filesystem>
#include <random>
#include <thread>
#include <vector>

namespace penstock::testing {
namespace {

class UnitInHandTest : public ::testing::Test {
   protected:
    std::string path() const { return parent_ / "swap"; }
    RigOptions in_host_memory(zero::DeviceKind device) const {
        return {.residency = {zero::Tier::host, zero::Tier::host}, .device = device};
    }

   private:
    const TemporaryDirectory parent_;
};

TEST_F(UnitInHandTest, AllTilesComeAtOnceWhereHostMemoryHasThemAndNoneIsWritten) {
    using enum zero::Tier;
    struct Case {
        zero::Residency residency;
        zero::ResidentTiles tiles;
        bool at_once;
    };
    for (const Case& each : {Case{{host, host}, zero::ResidentTiles::held_back, true},
                             Case{{host, host}, zero::ResidentTiles::written, false},
                             Case{{host, nvme}, zero::ResidentTiles::held_back, false},
                             Case{{nvme, host}, zero::ResidentTiles::held_back, false}}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), {.residency = each.residency});
        rig.begin_update(each.tiles);
        while (const auto unit = rig.driver().next_awaiting()) {
            const std::size_t count = rig.layout().unit(*unit).tile_count();
            zero::UnitInHand& hand = rig.driver().take(*unit);
            std::size_t turns = 0;
            for (auto tiles = hand.next(); !tiles.empty(); tiles = hand.next()) {
                EXPECT_EQ(tiles.size(), each.at_once ? count : 1U) << "unit " << *unit;
                ++turns;
                rig.update_tiles(tiles, 1);
                hand.put_back();
            }
            EXPECT_EQ(turns, each.at_once ? 1U : count) << "unit " << *unit;
            rig.driver().end_unit();
        }
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 1), 0U);
        rig.driver().commit({{"step", "1"}});
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(1), 0U);
    }
}

// Units are handed out in any order, within passes and between them, while a visit may be at another, or come back.
TEST_F(UnitInHandTest, AVisitFindsWhatWasUpdatedBesideCompute) {
    std::mt19937_64 random(11);
    for (const zero::ResidentTiles tiles : {zero::ResidentTiles::held_back, zero::ResidentTiles::written}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), in_host_memory(zero::DeviceKind::emulated));
        zero::Driver& driver = rig.driver();
        std::uint64_t updates = 0;
        for (int round = 0; round < 12; ++round) {
            const bool within = round % 2 == 0;
            std::vector<std::uint32_t> units = zero::in_order_of_visits(rig.layout(), {});
            std::shuffle(units.begin(), units.end(), random);
            if (within) driver.visit({}, {});
            driver.begin_update(units, tiles, within ? zero::UpdateAt::departure : zero::UpdateAt::arrival);
            ++updates;
            std::deque<zero::UnitInHand> hands;
            std::vector<std::thread> threads;
            for (const std::uint32_t unit : units) {
                if (within) {
                    EXPECT_EQ(rig.wrong_weights({{unit}}, {}, updates - 1), 0U);
                }
                hands.push_back(driver.hand_out(unit));
                EXPECT_FALSE(driver.awaits_update(unit));
                if (!threads.empty()) threads.back().join();  // one at a time, while compute goes on to the next
                threads.emplace_back([&rig, &hand = hands.back(), updates, pause = random() % 3] {
                    for (auto staged = hand.next(); !staged.empty(); staged = hand.next()) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(pause));
                        rig.update_tiles(staged, updates);
                        hand.put_back();
                    }
                });
            }
            std::shuffle(units.begin(), units.end(), random);
            for (const std::uint32_t unit : units)
                EXPECT_EQ(rig.wrong_weights({{unit}}, std::vector<zero::Visit>{{{units.back()}}}, updates), 0U)
                    << "round " << round << ", unit " << unit;
            threads.back().join();
            driver.end_pass();
            for (const zero::UnitInHand& hand : hands) driver.end_unit(hand);
            driver.renew_residents();
            round % 3 == 0 ? driver.commit({{"step", std::to_string(updates)}}) : driver.end_update();
        }
        driver.commit({{"step", std::to_string(updates)}});
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(updates), 0U);
    }
}

TEST_F(UnitInHandTest, OneThatIsHandedOutAndNeverPutBackEndsWithoutHang) {
    for (const zero::ResidentTiles tiles : {zero::ResidentTiles::held_back, zero::ResidentTiles::written}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), in_host_memory(zero::DeviceKind::emulated));
        rig.begin_update(tiles);
        zero::UnitInHand hand = rig.driver().hand_out(0);
        ASSERT_FALSE(hand.next().empty());
        zero::UnitInHand second = rig.driver().hand_out(1);
    }
}

TEST_F(UnitInHandTest, WhatIsFetchedForItsUpdateIsNotHandedOut) {
    DriverRig rig(path(), {.device = zero::DeviceKind::emulated});
    rig.begin_update();
    EXPECT_DEATH(rig.driver().hand_out(0), "handed out, but awaits no update, or is fetched");
}

}  // namespace
}  // namespace penstock::testing
