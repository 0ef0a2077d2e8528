// What of a plan the machine decides: it is told of one, and looks at none.
#include "zero_infinity/plan/machine_room.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/ample_room.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/plan/session_plan.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

zero::ModelSpec chain() {
    zero::ModelSpec model{.units = {}, .optimizers = zero::make_adamw({})};
    for (int unit = 0; unit < 5; ++unit)
        model.units.push_back({"u" + std::to_string(unit), {{.name = "weight", .shape = {40960}}}});
    return model;
}

zero::CoreOptions options(std::uint64_t budget_bytes = 1ULL << 30) {
    zero::CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.host_budget_bytes = budget_bytes;
    options.tile_numel = 4096;
    return options;
}

zero::MachineRoom room_of(std::uint64_t available_bytes) {
    zero::MachineRoom room = ample_room();
    room.host.available_bytes = available_bytes;
    return room;
}

std::uint64_t least_bytes(const zero::CoreOptions& given) {
    zero::CoreOptions planned = given;
    planned.host_budget_bytes = zero::planned_host_budget;
    return zero::SessionPlan(chain(), planned, ample_room(), {}).memory.budget.used_bytes();
}

TEST(MachineRoom, IsTheMachineThatIsNotEnough) {
    const std::uint64_t least = least_bytes(options());
    EXPECT_NO_THROW(zero::SessionPlan(chain(), options(least), room_of(least), {}));
    const std::string words =
        refusal_of(ExitCode::does_not_fit, [&] { zero::SessionPlan(chain(), options(least), room_of(least - 1), {}); });
    EXPECT_NE(words.find("a test"), std::string::npos) << words;
}

TEST(MachineRoom, IsFilledAsFarAsItGoes) {
    zero::CoreOptions filling = options();
    filling.fill_host_budget = true;
    const std::uint64_t least = least_bytes(options());
    const auto resident_bytes = [&](std::uint64_t available_bytes) {
        return zero::SessionPlan(chain(), filling, room_of(available_bytes), {}).layout.resident_bytes();
    };
    EXPECT_EQ(resident_bytes(least), 0U);
    std::uint64_t before = 0;
    for (std::uint64_t more = 0; more < 4U << 20; more += 256U << 10) {
        const std::uint64_t kept = resident_bytes(least + more);
        EXPECT_GE(kept, before);
        EXPECT_LE(zero::SessionPlan(chain(), filling, room_of(least + more), {}).memory.budget.used_bytes(),
                  least + more);
        before = kept;
    }
    EXPECT_GT(before, 0U);
}

TEST(MachineRoom, MakesGradientsLeaveWhereTheyMay) {
    zero::CoreOptions may = options();
    may.gradients_may_leave = true;
    const std::uint64_t staying = least_bytes(options());
    const auto memory = [&](std::uint64_t available_bytes) {
        return zero::SessionPlan(chain(), may, room_of(available_bytes), {}).options.gradient_memory;
    };
    EXPECT_EQ(memory(staying), zero::GradientMemory::all_units);
    EXPECT_EQ(memory(staying - 1), zero::GradientMemory::nvme);
    // Where that is not enough, the refusal is that of those that stay.
    const std::string words =
        refusal_of(ExitCode::does_not_fit, [&] { zero::SessionPlan(chain(), may, room_of(1 << 16), {}); });
    const std::string stay =
        refusal_of(ExitCode::does_not_fit, [&] { zero::SessionPlan(chain(), options(), room_of(1 << 16), {}); });
    EXPECT_EQ(words, stay);
}

TEST(MachineRoom, IsHalfADevicesBudgetWhereNoneIsGiven) {
    zero::CoreOptions on_device = options();
    on_device.device = {.kind = zero::DeviceKind::cuda};
    zero::MachineRoom room = ample_room();
    room.device_bytes = 64U << 20;
    EXPECT_EQ(zero::SessionPlan(chain(), on_device, room, {}).options.device.budget_bytes, 32U << 20);
    on_device.device.budget_bytes = 48U << 20;
    EXPECT_EQ(zero::SessionPlan(chain(), on_device, room, {}).options.device.budget_bytes, 48U << 20);
}

TEST(MachineRoom, IsReadOfThisMachine) {
    const zero::MachineRoom room = zero::MachineRoom::read({});
    EXPECT_GT(room.host.available_bytes, 0U);
    EXPECT_GT(room.cores, 0U);
    EXPECT_EQ(room.device_bytes, 0U);
    // Nobody can know what an emulated device has, and where a budget is given nobody asks.
    refusal_of(ExitCode::usage, [] { zero::MachineRoom::read({.kind = zero::DeviceKind::emulated}); });
    EXPECT_EQ(zero::MachineRoom::read({.kind = zero::DeviceKind::emulated, .budget_bytes = 1 << 20}).device_bytes, 0U);
}

}  // namespace
}  // namespace penstock::testing
