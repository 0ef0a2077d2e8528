#include "zero_infinity/plan/host_room.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/session/session_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::Tier;

zero::ModelSpec model() {
    zero::ModelSpec model{.units = {}, .optimizers = zero::make_adamw({})};
    for (const std::int64_t numel : {40960, 20480, 40960, 4096, 40960}) {
        zero::UnitSpec unit;
        unit.name = fmt::format("u{}", model.units.size());
        unit.parameters.push_back({.name = "weight", .shape = {numel}});
        model.units.push_back(std::move(unit));
    }
    return model;
}

zero::CoreOptions options(std::uint64_t budget) {
    zero::CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.host_budget_bytes = budget;
    options.tile_numel = 4096;
    options.fill_host_budget = true;
    return options;
}

std::uint64_t least_budget() {
    return zero::SessionPlan(model(), options(zero::planned_host_budget), {}).memory.budget.used_bytes();
}

// split: 2 bytes of weights and 10 of states for each element.
std::string kept(const zero::ModelLayout& layout) {
    std::string text;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        text += layout.weights_tier(unit) == Tier::host ? 'w' : '.';
        text += layout.states_tier(unit) == Tier::host ? 's' : '.';
    }
    return text;
}

TEST(HostRoom, IsFilledByWeightsFirstAndThenByStates) {
    const auto kept_in = [](std::uint64_t bytes) {
        return kept(zero::SessionPlan(model(), options(least_budget() + bytes), {}).layout);
    };
    EXPECT_EQ(kept_in(0), "..........");
    EXPECT_EQ(kept_in(8191), "..........");
    EXPECT_EQ(kept_in(8192), "......w...");          // of what has room, the first
    EXPECT_EQ(kept_in(81920 + 8192), "w.....w...");  // a larger one is passed over
    EXPECT_EQ(kept_in(81920 + 40960), "w.w.......");
    const std::uint64_t all_weights = 2 * (3 * 40960 + 20480 + 4096);
    EXPECT_EQ(kept_in(all_weights), "w.w.w.w.w.");
    EXPECT_EQ(kept_in(all_weights + 409600), "wsw.w.w.w.");
    EXPECT_EQ(kept_in(all_weights + 409600 + 40960), "wsw.w.wsw.");
    EXPECT_EQ(kept_in(1ULL << 30), "wswswswsws");
}

// A curve, not a cliff: every byte of room that is filled saves its reads.
TEST(HostRoom, ReadsFallInProportion) {
    const std::uint64_t least = least_budget();
    const zero::SessionPlan none(model(), options(least), {});
    std::uint64_t last = none.step_bytes.read;
    for (std::uint64_t room = 0; room < 2 << 20; room += 16384) {
        const zero::SessionPlan plan(model(), options(least + room), {});
        EXPECT_LE(plan.memory.budget.used_bytes(), least + room);
        EXPECT_LE(plan.step_bytes.read, last);
        const std::uint64_t resident = plan.layout.resident_weights_bytes() + plan.layout.resident_states_bytes();
        EXPECT_LE(plan.step_bytes.read + resident, none.step_bytes.read);
        EXPECT_EQ(plan.step_bytes.write + plan.step_bytes.resident_write, none.step_bytes.write);
        last = plan.step_bytes.read;
    }
    EXPECT_EQ(last, 0U);
}

TEST(HostRoom, IsLeftWhereNobodyAskedForIt) {
    zero::CoreOptions asked_for_nothing = options(1ULL << 30);
    asked_for_nothing.fill_host_budget = false;
    EXPECT_EQ(kept(zero::SessionPlan(model(), asked_for_nothing, {}).layout), "..........");
}

TEST(HostRoom, UnitsThatMayBeUpdatedAgainStayOnNvme) {
    zero::CoreOptions speculative = options(1ULL << 30);
    speculative.update_order = zero::UpdateOrder::speculative;
    const std::string words = refusal_of(ExitCode::usage, [&] { zero::SessionPlan(model(), speculative, {}); });
    EXPECT_NE(words.find("fill_host_budget"), std::string::npos) << words;
}

}  // namespace
}  // namespace penstock::testing
