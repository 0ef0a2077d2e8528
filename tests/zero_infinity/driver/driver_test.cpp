#include "tests/zero_infinity/driver/driver_rig.h"

#include "aio/words/error.h"
#include "tests/temporary_directory.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

// Of the first tile of every unit that has several.
constexpr std::uint32_t weights_bytes = 4096 * 2;
constexpr std::uint32_t states_bytes = 4096 * (2 + 4);

// With tiles hashed by the driver's thread, and by others.
class DriverTest : public ::testing::TestWithParam<unsigned> {
   protected:
    DriverTest() { RigHashing::threads = GetParam(); }
    ~DriverTest() override { RigHashing::threads = 0; }
    std::string path() const { return parent_ / "swap"; }

   private:
    const TemporaryDirectory parent_;
};

TEST_P(DriverTest, EveryVisitSeesTheNewestWeightsOnEveryTierAndDevice) {
    std::uint64_t updates = 0;
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        for (const zero::Residency residency : {zero::Residency{}, zero::Residency{zero::Tier::host, zero::Tier::nvme},
                                                zero::Residency{zero::Tier::host, zero::Tier::host}}) {
            for (const std::uint32_t depth : {0U, 1U, 2U, 7U}) {
                DriverRig rig(path(), {.depth = depth, .residency = residency, .device = device});
                for (int step = 0; step < 2; ++step) {
                    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, updates), 0U) << "depth " << depth;
                    rig.update(updates + 1);
                    rig.driver().commit({{"step", std::to_string(++updates)}});
                    EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, updates), 0U) << "depth " << depth;
                }
            }
        }
    }
}

// Passes that go where nobody expected them, and end anywhere, with fetches under way.
TEST_P(DriverTest, AnyOrderOfVisitsSeesTheNewestWeights) {
    std::mt19937_64 random(7);
    std::uint64_t updates = 0;
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        for (const zero::Tier weights : {zero::Tier::nvme, zero::Tier::host}) {
            DriverRig rig(path(), {.depth = 2, .residency = {weights, zero::Tier::nvme}, .device = device});
            const auto any_visits = [&] {
                std::vector<zero::Visit> visits;
                for (std::uint64_t count = 1 + random() % 12; count > 0; --count)
                    visits.push_back({{static_cast<std::uint32_t>(random() % rig.layout().unit_count())}});
                return visits;
            };
            const std::uint64_t before = rig.io().statistics().total_read_bytes();
            for (int pass = 0; pass < 40; ++pass) {
                rig.driver().visit({}, any_visits());
                for (const zero::Visit& visit : any_visits())
                    EXPECT_EQ(rig.wrong_weights(visit, any_visits(), updates), 0U) << "pass " << pass;
                rig.driver().end_pass();
                if (random() % 2 == 0) continue;  // what the window has is still right
                rig.update(updates + 1);
                rig.driver().commit({{"step", std::to_string(++updates)}});
            }
            if (weights == zero::Tier::host) continue;
            rig.update(updates + 1);  // waits for what is still being fetched
            rig.driver().commit({{"step", std::to_string(++updates)}});
            EXPECT_GT(rig.io().statistics().total_read_bytes() - before, rig.driver().fetched_bytes());
        }
    }
}

// Units that a visit holds stay where they are, so that views of them are good until they are let go.
TEST_P(DriverTest, HeldUnitsStayWhereTheyAre) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        DriverRig rig(path(), {.depth = 1, .device = device});
        rig.driver().visit({{5, 0}}, {});
        const std::byte* where = rig.driver().memory(5).weights;
        const std::uint32_t held[] = {5};
        for (const std::uint32_t unit : {1U, 2U, 3U, 4U}) {
            rig.driver().visit({{unit, 5}}, {}, held);
            EXPECT_EQ(rig.driver().memory(5).weights, where);
        }
    }
}

// Their slots are those that are free: three serve nine tiles while one waits for its write.
TEST_P(DriverTest, ASlowWriteOfStatesHoldsNoOtherTileBack) {
    DriverRig rig(path(), {});
    rig.faults.slow_write_bytes = states_bytes;
    rig.update(1);  // hands out and takes back all tiles
    EXPECT_TRUE(rig.faults.slow_write_met);
    rig.faults.slow_write_bytes = 0;
    rig.driver().commit({{"step", "1"}});
    rig.end_driver();
    EXPECT_EQ(rig.wrong_in_store(1), 0U);
}

// Nothing comes to where weights are still being written from.
TEST_P(DriverTest, ASlowWriteOfWeightsKeepsThem) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), {.depth = 1, .device = device});
        rig.faults.slow_write_bytes = weights_bytes;
        std::thread later([&] {
            while (!rig.faults.slow_write_met) std::this_thread::yield();
            std::this_thread::sleep_for(std::chrono::milliseconds(200));  // for what would come meanwhile
            rig.faults.slow_write_bytes = 0;
        });
        rig.update(1);
        rig.driver().commit({{"step", "1"}});
        later.join();
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 1), 0U);
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(1), 0U);
    }
}

// Whoever is visited first is updated first, whatever was fetched and staged for others.
TEST_P(DriverTest, UnitsAreUpdatedWhereComputeVisitsThem) {
    std::mt19937_64 random(3);
    constexpr zero::Residency weights_in_host_memory{zero::Tier::host, zero::Tier::nvme};
    constexpr zero::DeviceKind apart = zero::DeviceKind::emulated;
    for (const RigOptions& options :
         {RigOptions{}, RigOptions{.residency = weights_in_host_memory}, RigOptions{.device = apart},
          RigOptions{.residency = weights_in_host_memory, .device = apart},
          RigOptions{.device = apart, .host_budget_bytes = RigOptions::passage_of_one_unit},
          RigOptions{.device = apart,
          .copy_delay = std::chrono::milliseconds(5),
          .host_budget_bytes = RigOptions::passage_of_one_unit}}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), options);
        for (std::uint64_t updates = 1; updates <= 12; ++updates) {
            rig.begin_update();
            const auto any_unit = [&] { return static_cast<std::uint32_t>(random() % rig.layout().unit_count()); };
            const std::vector<zero::Visit> expected = {{{any_unit()}}, {{any_unit()}}, {{any_unit()}}};
            rig.driver().visit({}, expected);
            for (std::uint64_t visits = random() % 8; visits > 0; --visits) {
                zero::Visit visit{{any_unit()}};
                if (const std::uint32_t other = any_unit(); other != visit.units[0]) visit.units.push_back(other);
                rig.driver().visit(visit, expected);
                for (const std::uint32_t unit : visit.units)
                    if (rig.driver().awaits_update(unit)) rig.update_unit(unit, updates);
                EXPECT_EQ(rig.wrong_weights(visit, expected, updates), 0U) << updates;
            }
            rig.driver().end_pass();
            while (const auto unit = rig.driver().next_awaiting()) rig.update_unit(*unit, updates);
            rig.driver().commit({{"step", std::to_string(updates)}});
            if (updates % 3 == 0) {
                EXPECT_EQ(rig.wrong_weights(zero::Pass::training, updates), 0U);
            }
        }
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(12), 0U);
    }
}

TEST_P(DriverTest, AnUpdateWithoutCommitIsGoneAtTheNextStart) {
    {
        DriverRig rig(path(), {});
        rig.update(1);
    }
    DriverRig rig(path(), {});
    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 0), 0U);
}

TEST_P(DriverTest, WhatIsTakenBackIsAsTheNewestCommitHasIt) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), {.device = device});
        std::vector<std::uint32_t> units = zero::in_order_of_visits(rig.layout(), {});
        for (std::uint64_t step = 1; step <= 3; ++step) {
            rig.update(step);
            rig.driver().end_update();
            EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, step), 0U);
            rig.driver().take_back(units);
            EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, step - 1), 0U);
            rig.update(step);
            rig.driver().end_update();
            const std::vector<std::uint32_t> some(units.begin() + static_cast<std::ptrdiff_t>(step) - 1, units.end());
            rig.driver().take_back(some);
            rig.driver().begin_update(some, zero::ResidentTiles::written);
            for (const std::uint32_t unit : some) rig.update_unit(unit, step);
            rig.driver().commit({{"step", std::to_string(step)}});
        }
        EXPECT_EQ(rig.wrong_weights(zero::Pass::inference, 3), 0U);
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(3), 0U);
    }
}

// Of other units, and of the same: their tiles wait for what is still written of them.
TEST_P(DriverTest, AnUpdateMayBeginWhileTheOneBeforeIsWritten) {
    std::mt19937_64 random(4);
    constexpr zero::Residency weights_in_host_memory{zero::Tier::host, zero::Tier::nvme};
    constexpr zero::Residency all_in_host_memory{zero::Tier::host, zero::Tier::host};
    constexpr zero::DeviceKind apart = zero::DeviceKind::emulated;
    for (const RigOptions& options :
         {RigOptions{}, RigOptions{.residency = weights_in_host_memory}, RigOptions{.residency = all_in_host_memory},
          RigOptions{.device = apart}, RigOptions{.residency = weights_in_host_memory, .device = apart},
          RigOptions{.device = apart, .host_budget_bytes = RigOptions::passage_of_one_unit}}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), options);
        std::vector<std::uint32_t> units = zero::in_order_of_visits(rig.layout(), {});
        constexpr std::uint64_t updates = 20;
        for (std::uint64_t update = 1; update <= updates; ++update) {
            std::shuffle(units.begin(), units.end(), random);
            const bool last = update == updates;
            const auto middle = units.begin() + static_cast<std::ptrdiff_t>(1 + random() % (units.size() - 1));
            for (const std::vector<std::uint32_t>& some :
                 {std::vector<std::uint32_t>(units.begin(), middle), {middle, units.end()}}) {
                rig.driver().begin_update(
                    some, last || update % 3 == 0 ? zero::ResidentTiles::written : zero::ResidentTiles::held_back);
                for (const std::uint32_t unit : some) rig.update_unit(unit, update);
            }
            if (update % 7 == 0) rig.driver().end_update();
        }
        rig.driver().commit({{"step", "20"}});
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, updates), 0U);
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(updates), 0U);
    }
}

TEST_P(DriverTest, AnUpdateLeftHalfwayEndsWithoutHang) {
    DriverRig rig(path(), {});
    rig.begin_update();
    zero::UnitInHand& hand = rig.driver().take(0);
    ASSERT_FALSE(hand.next().empty());
    hand.put_back();
    ASSERT_FALSE(hand.next().empty());  // handed out and never put back, as when a step throws
}

TEST_P(DriverTest, APassLeftHalfwayEndsWithoutHang) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        DriverRig rig(path(), {.depth = 3, .device = device});
        rig.driver().visit({{0}}, std::vector<zero::Visit>{{{1}}, {{2}}, {{4}}});
    }
}

TEST_P(DriverTest, ADamagedTileStopsThePassAndIsNamed) {
    store::TileLocation where;
    {
        DriverRig rig(path(), {});
        where = rig.store().location({*rig.store().find("second.weights"), 1});
    }
    std::fstream file(where.path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(where.offset_bytes + 17));
    file.put('\x5a');
    file.close();
    DriverRig rig(path(), {});
    try {
        rig.wrong_weights(zero::Pass::training, 0);
        FAIL() << "the damage was not noticed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::storage);
        EXPECT_NE(std::string(error.what()).find("second.weights"), std::string::npos) << error.what();
        EXPECT_NE(std::string(error.what()).find("offset"), std::string::npos) << error.what();
    }
}

TEST_P(DriverTest, ACommitWhoseFlushFailsIsAnErrorAndTheLastGenerationStays) {
    {
        DriverRig rig(path(), {});
        rig.faults.fails_flush = true;
        rig.update(1);
        try {
            rig.driver().commit({{"step", "1"}});
            FAIL() << "it was committed";
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::storage);
            EXPECT_NE(std::string(error.what()).find("EIO"), std::string::npos) << error.what();
        }
    }
    DriverRig rig(path(), {});
    EXPECT_EQ(rig.store().client().at("step"), "0");
    EXPECT_EQ(rig.wrong_weights(zero::Pass::training, 0), 0U);
}

TEST_P(DriverTest, AClientStateThatIsTooLargeIsRefusedAndTheDriverEnds) {
    DriverRig rig(path(), {});
    try {
        rig.driver().commit({{"text", std::string(1 << 20, 'x')}});
        FAIL() << "it was committed";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::usage) << error.what();
    }
}

// Nothing that is in flight comes back, ever: the error reaches the caller by the deadline, and the driver's end does
// not wait. In a process of its own, because what the device may still write into is kept until the process ends.
class StuckDriverTest : public DriverTest {
   protected:
    [[noreturn]] void end_stuck(const RigOptions& options) {
        auto* rig = new DriverRig(path(), options);
        rig->faults.stuck = options.device == zero::DeviceKind::cpu;
        exit_with_error(*rig, [&] { rig->wrong_weights(zero::Pass::training, 0); });
    }
};

TEST_P(StuckDriverTest, ADiskThatDoesNotAnswerIsReportedAtTheDeadline) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(end_stuck({.deadline = std::chrono::seconds(1)}), ::testing::ExitedWithCode(7),
                "code 4: read of .*/data at offset .* the device is stuck");
}

TEST_P(StuckDriverTest, ACopyThatDoesNotEndIsReportedAtTheDeadline) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(end_stuck({.device = zero::DeviceKind::emulated,
                           .copy_delay = std::chrono::hours(1),
                           .deadline = std::chrono::seconds(3)}),
                ::testing::ExitedWithCode(7),
                "code 1: a copy of weights to or from device 'emulated', or the compute before it, has not ended");
}

// Nobody waits for what hangs here but the driver's end: whoever owns the pool and the store must know before they are
// destroyed. A step that throws leaves reads under way like that.
TEST_P(StuckDriverTest, ADiskThatHangsWhileTheDriverEndsIsKnownOnceItIsStopped) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(
        {
            auto rig = std::make_unique<DriverRig>(path(), RigOptions{.deadline = std::chrono::seconds(1)});
            rig->faults.stuck = true;
            rig->driver().visit({}, std::vector<zero::Visit>{{{0}}});
            while (rig->faults.held == 0) std::this_thread::yield();
            rig->driver().stop();
            if (rig->driver().stuck()) {
                rig->end_driver();
                std::fprintf(stderr, "kept\n");
                ::_exit(7);
            }
            rig.reset();
            ::_exit(0);
        },
        ::testing::ExitedWithCode(7), "kept");
}

TEST_P(DriverTest, WeightsThatAwaitTheirUpdateAreNotRead) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            DriverRig rig(path(), {});
            rig.begin_update();
            rig.driver().visit({{0}}, {});
            rig.driver().memory(0);
        },
        "memory of unit 0, which awaits its update");
}

INSTANTIATE_TEST_SUITE_P(HashThreads, DriverTest, ::testing::Values(0U, 2U));
INSTANTIATE_TEST_SUITE_P(HashThreads, StuckDriverTest, ::testing::Values(0U, 2U));

}  // namespace
}  // namespace penstock::testing
