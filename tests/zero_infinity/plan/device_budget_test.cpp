// How the budget of a device with memory of its own is divided, before there is a device.
#include "tests/refusal.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/session/session_client.h"
#include "zero_infinity/plan/gradient_memory.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

constexpr std::uint64_t granule = pool::granule_bytes;

class DeviceBudgetTest : public ComputeTest {
   protected:
    static zero::CoreOptions options(std::uint64_t budget_bytes) {
        zero::CoreOptions options;
        options.codec = "plain_fp32";
        options.gradient_type = zero::PlaneType::fp32;
        options.tile_numel = 4096;
        options.host_budget_bytes = 32 << 20;
        options.device = {.kind = devices().back(), .budget_bytes = budget_bytes};
        return options;
    }
    static zero::SessionPlan plan(std::uint64_t budget_bytes, const std::vector<std::uint32_t>& residents = {}) {
        zero::ModelSpec model{.units = units(), .optimizers = zero::make_adamw({})};
        for (const std::uint32_t unit : residents) model.units[unit].resident = true;
        return {model, options(budget_bytes), ample_room(), {}};
    }
    static std::uint64_t all_weights(const zero::ModelLayout& layout) {
        std::uint64_t bytes = 0;
        for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) bytes += layout.gathered(unit).bytes;
        return bytes;
    }
    static std::uint64_t all_gradients(const zero::ModelLayout& layout) {
        return zero::gradient_bytes(layout, zero::PlaneType::fp32, zero::GradientMemory::all_units);
    }
};

TEST_F(DeviceBudgetTest, WhereAllFitsNoMoreIsTakenThanAllTakes) {
    const zero::SessionPlan all = plan(4 << 20);
    EXPECT_EQ(all.memory.window.window_bytes, all_weights(all.layout));
    EXPECT_EQ(all.memory.device_gradient_bytes, all_gradients(all.layout));
    EXPECT_EQ(all.device().budget_bytes, all.memory.window.window_bytes + all.memory.device_gradient_bytes);
    // Each unit comes once for forward and backward.
    EXPECT_EQ(all.memory.pass_read_bytes, [&] {
        std::uint64_t bytes = 0;
        for (std::uint32_t unit = 0; unit < all.layout.unit_count(); ++unit) bytes += all.layout.gathered(unit).bytes;
        return bytes;
    }());
}

TEST_F(DeviceBudgetTest, AWiderOneIsNeverWorse) {
    std::uint64_t fitting = 0;
    std::uint64_t window = 0;
    std::uint64_t most_read = 0;
    std::uint64_t read = 0;
    std::uint64_t gradients = 0;
    for (std::uint64_t budget = granule; budget <= 90 * granule; budget += granule) {
        try {
            const zero::SessionPlan divided = plan(budget);
            EXPECT_LE(divided.memory.device_bytes, budget);
            EXPECT_GE(divided.memory.window.window_bytes, window);
            EXPECT_GE(divided.memory.device_gradient_bytes, gradients);
            window = divided.memory.window.window_bytes;
            read = divided.memory.pass_read_bytes;
            most_read = std::max(most_read, read);
            gradients = divided.memory.device_gradient_bytes;
            ++fitting;
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::does_not_fit);
            EXPECT_EQ(fitting, 0U) << "with less it did fit: " << error.what();
        }
    }
    EXPECT_GT(fitting, 20U);
    EXPECT_LT(read, most_read);
}

TEST_F(DeviceBudgetTest, ResidentUnitsHaveMemoryOfTheirOwn) {
    const zero::SessionPlan without = plan(4 << 20);
    const zero::SessionPlan with = plan(4 << 20, {1, 3});
    EXPECT_EQ(with.memory.device_bytes, without.memory.device_bytes);
    EXPECT_EQ(with.memory.window.window_bytes,
              without.memory.window.window_bytes - with.layout.gathered(1).bytes - with.layout.gathered(3).bytes);
    const std::string text = refusal_of(ExitCode::does_not_fit, [] { plan(40 * granule, {1, 3}); });
    EXPECT_NE(text.find("for gradients and 77824 for resident weights"), std::string::npos) << text;
    const std::string missing = refusal_of(ExitCode::does_not_fit, [] { plan(granule, {0, 1, 2, 3, 4}); });
    EXPECT_NE(missing.find("bytes are missing"), std::string::npos) << missing;
}

TEST_F(DeviceBudgetTest, OneThatIsNotGivenIsHalfOfWhatAGpuHasFree) {
    if (devices().back() != zero::DeviceKind::cuda) {
        EXPECT_EQ(refusal_of(ExitCode::usage, [] { zero::MachineRoom::read(options(0).device); }),
                  "the device 'emulated' has as much memory as it is given: give it a budget");
        return;
    }
    const zero::MachineRoom room = zero::MachineRoom::read(options(0).device);
    const zero::SessionPlan half({.units = units(), .optimizers = zero::make_adamw({})}, options(0), room, {});
    EXPECT_EQ(half.options.device.budget_bytes, 2U << 20);
    EXPECT_EQ(half.memory.device_bytes, plan(4 << 20).memory.device_bytes);
}

}  // namespace
}  // namespace penstock::testing
