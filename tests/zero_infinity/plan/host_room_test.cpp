#include "zero_infinity/plan/host_room.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/update_way.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/plan/session_plan.h"

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
    options.fill_host_budget = budget != zero::planned_host_budget;
    return options;
}

std::uint64_t least_budget() {
    return zero::SessionPlan(model(), options(zero::planned_host_budget), ample_room(), {}).memory.budget.used_bytes();
}

// split: 2 bytes of weights and 10 of states for each element. Of each unit: are its weights kept, and how many tiles
// of its states, of 4096 elements each.
std::string kept(const zero::ModelLayout& layout) {
    std::string text;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        text += fmt::format("{}{}{}", unit > 0 ? " " : "", layout.weights_tier(unit) == Tier::host ? 'w' : '.',
                            layout.states_bytes(unit, Tier::host) / 40960);
    return text;
}

TEST(HostRoom, IsFilledByWeightsFirstAndThenByTilesOfStates) {
    const zero::SessionPlan none(model(), options(least_budget()), ample_room(), {});
    const auto kept_in = [&](std::uint64_t bytes) {
        return kept(zero::ModelLayout({.units = none.model.units,
                                       .format = none.format,
                                       .optimizers = none.model.optimizers,
                                       .tile_numel = none.options.tile_numel,
                                       .residency = {},
                                       .unit_residency = fill_room(none.layout, bytes)}));
    };
    EXPECT_EQ(kept_in(0), ".0 .0 .0 .0 .0");
    EXPECT_EQ(kept_in(8191), ".0 .0 .0 .0 .0");
    EXPECT_EQ(kept_in(8192), ".0 .0 .0 w0 .0");          // of what has room, the first
    EXPECT_EQ(kept_in(81920 + 8192), "w0 .0 .0 w0 .0");  // a larger one is passed over
    EXPECT_EQ(kept_in(81920 + 40960), "w0 w0 .0 .0 .0");
    EXPECT_EQ(kept_in(2 * 81920 + 8192), "w0 .0 w0 w0 .0");  // more in all than those that have room in order
    const std::uint64_t all_weights = 2 * (3 * 40960 + 20480 + 4096);
    EXPECT_EQ(kept_in(all_weights), "w0 w0 w0 w0 w0");
    EXPECT_EQ(kept_in(all_weights + 40959), "w0 w0 w0 w0 w0");
    EXPECT_EQ(kept_in(all_weights + 40960), "w1 w0 w0 w0 w0");
    EXPECT_EQ(kept_in(all_weights + 12 * 40960), "w10 w2 w0 w0 w0");
    EXPECT_EQ(kept_in(1ULL << 30), "w10 w5 w10 w1 w10");
}

// Without streamed weights there is no window.
TEST(HostRoom, WhatItFillsLeavesRoomThatIsFilledToo) {
    const zero::SessionPlan plan(model(), options(least_budget() + 294912), ample_room(), {});  // all weights
    EXPECT_EQ(kept(plan.layout), "w5 w0 w0 w0 w0");
    EXPECT_LE(plan.memory.budget.used_bytes(), least_budget() + 294912);
}

// A curve, not a cliff: every byte of room that is filled saves its reads.
TEST(HostRoom, ReadsFallInProportion) {
    const std::uint64_t least = least_budget();
    const zero::SessionPlan none(model(), options(least), ample_room(), {});
    std::uint64_t last = none.step_bytes.read;
    for (std::uint64_t room = 0; room < 2 << 20; room += 16384) {
        const zero::SessionPlan plan(model(), options(least + room), ample_room(), {});
        EXPECT_LE(plan.memory.budget.used_bytes(), least + room);
        EXPECT_LE(plan.step_bytes.read, last);
        const std::uint64_t resident = plan.layout.resident_bytes();
        EXPECT_LE(plan.step_bytes.read + resident, none.step_bytes.read);
        EXPECT_EQ(plan.step_bytes.write + plan.step_bytes.resident_write, none.step_bytes.write);
        const bool all_weights = plan.layout.resident_weights_bytes() == 2 * (3 * 40960 + 20480 + 4096);
        if (all_weights && plan.step_bytes.read > 0) {
            EXPECT_LT(least + room - plan.memory.budget.used_bytes(), 40960U) << "no tile more";
        }
        last = plan.step_bytes.read;
    }
    EXPECT_EQ(last, 0U);
}

TEST(HostRoom, IsLeftWhereNobodyAskedForIt) {
    zero::CoreOptions asked_for_nothing = options(1ULL << 30);
    asked_for_nothing.fill_host_budget = false;
    EXPECT_EQ(kept(zero::SessionPlan(model(), asked_for_nothing, ample_room(), {}).layout), ".0 .0 .0 .0 .0");
}

TEST(HostRoom, APlannedBudgetLeavesNothingToFill) {
    zero::CoreOptions filled = options(zero::planned_host_budget);
    filled.fill_host_budget = true;
    const std::string words =
        refusal_of(ExitCode::usage, [&] { zero::SessionPlan(model(), filled, ample_room(), {}); });
    EXPECT_NE(words.find("fill_host_budget without a host_budget_bytes"), std::string::npos) << words;
}

TEST(HostRoom, UnitsThatMayBeUpdatedAgainStayOnNvme) {
    zero::CoreOptions speculative = options(1ULL << 30);
    zero::update_by(zero::UpdateWay::speculative, speculative);
    const std::string words =
        refusal_of(ExitCode::usage, [&] { zero::SessionPlan(model(), speculative, ample_room(), {}); });
    EXPECT_NE(words.find("fill_host_budget"), std::string::npos) << words;
}

}  // namespace
}  // namespace penstock::testing
