// Units that are updated where backward leaves them, in passes that go and end anywhere, while writes are slow.
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/driver/driver_rig.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace penstock::testing {
namespace {

using zero::TraceLane;
using zero::TraceSpan;

constexpr std::uint32_t weights_tile_bytes = 4096 * 2;

// The next write of a tile's weights stays with the device for some milliseconds.
class SlowWrite {
   public:
    SlowWrite(DriverRig& rig, std::chrono::milliseconds time) {
        rig.faults.slow_write_met = false;
        rig.faults.slow_write_bytes = weights_tile_bytes;
        release_ = std::thread([&rig, time] {
            std::this_thread::sleep_for(time);
            rig.faults.slow_write_bytes = 0;
            rig.wake_io();
        });
    }
    ~SlowWrite() { release_.join(); }
    SlowWrite(const SlowWrite&) = delete;
    SlowWrite& operator=(const SlowWrite&) = delete;

   private:
    std::thread release_;
};

class DepartureTest : public ::testing::Test {
   protected:
    std::string path() const { return parent_ / "swap"; }

   private:
    const TemporaryDirectory parent_;
};

TEST_F(DepartureTest, AnyPassThatIsUpdatedWithinGivesTheNewestWeights) {
    std::mt19937_64 random(11);
    constexpr zero::DeviceKind apart = zero::DeviceKind::emulated;
    constexpr zero::Residency weights_in_host_memory{zero::Tier::host, zero::Tier::nvme};
    for (const RigOptions& options :
         {RigOptions{.depth = 1}, RigOptions{}, RigOptions{.residency = weights_in_host_memory},
          RigOptions{.device = apart}, RigOptions{.residency = weights_in_host_memory, .device = apart},
          RigOptions{.device = apart, .host_budget_bytes = RigOptions::passage_of_one_unit},
          RigOptions{
              .depth = 1, .device = apart, .copy_delay = std::chrono::milliseconds(1), .host_budget_bytes = 1 << 20}}) {
        std::filesystem::remove_all(path());
        DriverRig rig(path(), options);
        zero::Driver& driver = rig.driver();
        const std::vector<std::uint32_t> units = zero::in_order_of_visits(rig.layout(), {});
        constexpr std::uint64_t updates = 48;
        for (std::uint64_t update = 1; update <= updates; ++update) {
            std::vector<zero::Visit> expected;
            for (std::uint64_t count = 2 + random() % 8; count > 0; --count)
                expected.push_back({{static_cast<std::uint32_t>(random() % rig.layout().unit_count())}});
            std::vector<std::uint32_t> order = units;
            std::shuffle(order.begin(), order.end(), random);
            SlowWrite slow(rig, std::chrono::milliseconds(random() % 6));
            driver.visit({}, expected);
            driver.begin_update(order, zero::ResidentTiles::written, zero::UpdateAt::departure);
            std::span<const zero::Visit> ahead = expected;
            for (std::uint64_t left = random() % (expected.size() + 1); left > 0; --left) {
                const zero::Visit& visit = ahead.front();
                ahead = ahead.subspan(1);
                const bool old = driver.awaits_update(visit.units[0]);
                EXPECT_EQ(rig.wrong_weights(visit, ahead, update - (old ? 1 : 0)), 0U) << "update " << update;
                if (old && random() % 3 > 0) rig.update_unit(visit.units[0], update);
            }
            driver.end_pass();
            while (const auto unit = driver.next_awaiting()) rig.update_unit(*unit, update);
            if (update % 3 == 0) driver.end_update();
        }
        driver.commit({{"step", std::to_string(updates)}});
        EXPECT_EQ(rig.wrong_weights(zero::Pass::training, updates), 0U);
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(updates), 0U);
    }
}

// Nothing of them is read twice: a device of its own memory gives them back.
TEST_F(DepartureTest, WeightsAreTakenFromWhereComputeHasReadThem) {
    for (const zero::DeviceKind device : {zero::DeviceKind::cpu, zero::DeviceKind::emulated}) {
        std::filesystem::remove_all(path());
        zero::TraceRecorder recorder(10000);
        DriverRig rig(path(), {.device = device, .trace = &recorder});
        const std::vector<std::uint32_t> units = zero::in_order_of_visits(rig.layout(), {});
        recorder.begin_step(1);
        rig.driver().visit({}, {});
        rig.driver().begin_update(units, zero::ResidentTiles::written, zero::UpdateAt::departure);
        for (const std::uint32_t unit : units) {
            EXPECT_EQ(rig.wrong_weights({{unit}}, {}, 0), 0U);
            rig.update_unit(unit, 1);
        }
        rig.driver().end_pass();
        rig.driver().commit({{"step", "1"}});
        recorder.end_steps();
        rig.driver().stop();
        std::vector<std::uint64_t> reads(rig.layout().unit_count()), copies(rig.layout().unit_count());
        for (const TraceSpan& span : recorder.spans(zero::TraceThread::driver)) {
            if (span.lane == TraceLane::copy_out) copies[span.unit] += span.bytes;
            if (span.lane == TraceLane::read && span.object == rig.layout().objects(span.unit).weights)
                reads[span.unit] += span.bytes;
        }
        for (const std::uint32_t unit : units) {
            const std::uint64_t bytes = rig.layout().memory_bytes(rig.layout().objects(unit).weights);
            EXPECT_EQ(reads[unit], bytes) << "unit " << unit;
            EXPECT_EQ(copies[unit], device == zero::DeviceKind::cpu ? 0 : bytes) << "unit " << unit;
        }
        rig.end_driver();
        EXPECT_EQ(rig.wrong_in_store(1), 0U);
    }
}

[[noreturn]] void update_from_a_device_that_hangs(const std::string& path) {
    auto* rig = new DriverRig(
        path, {.device = zero::DeviceKind::emulated, .copies_out_hang = true, .deadline = std::chrono::seconds(1)});
    exit_with_error(*rig, [&] {
        rig->driver().visit({}, {});
        rig->driver().begin_update({0}, zero::ResidentTiles::written, zero::UpdateAt::departure);
        rig->driver().visit({{0}}, {});
        rig->update_unit(0, 1);
    });
}

TEST_F(DepartureTest, ACopyBackThatDoesNotEndIsReportedAtTheDeadline) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(update_from_a_device_that_hangs(path()), ::testing::ExitedWithCode(7),
                "code 1: a copy of weights to or from device 'emulated', or the compute before it, has not ended");
}

}  // namespace
}  // namespace penstock::testing
