#include "zero_infinity/forecast/step_forecast.h"

#include "aio/words/error.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/update_way.h"
#include "zero_infinity/forecast/shelf_replay.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/order/update_sequence.h"
#include "zero_infinity/plan/session_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using Random = std::mt19937_64;
using zero::DeviceRates;
using zero::HostSeconds;
using zero::StepForecast;
using zero::UnitSeconds;
using zero::UpdateWay;

constexpr auto orders = zero::update_ways;

std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
    return least + random() % (most - least + 1);
}

zero::UnitSpec unit_of(const std::string& name, std::int64_t numel) {
    return {name, {{.name = "weight", .shape = {numel}}}};
}

zero::CoreOptions options_of(UpdateWay order) {
    zero::CoreOptions options;
    options.swap_directories = {"nowhere"};
    options.host_budget_bytes = zero::planned_host_budget;
    options.tile_numel = 4096;
    update_by(order, options);
    return options;
}

zero::ParameterGroups adamw() {
    return zero::make_adamw({});
}

// Of visits, and of passes before an update.
struct OfVisits {
    std::vector<double> seconds;
    std::size_t forward = 0;
    std::uint64_t passes = 1;
    zero::LaidAside laid = {};
};

StepForecast forecast(const zero::SessionPlan& plan, std::span<const UnitSeconds> seconds, const HostSeconds& host,
                      const DeviceRates& rates, const OfVisits& visits = {}) {
    return forecast_step({.layout = &plan.layout,
                          .window = plan.memory.window,
                          .staging_tiles = plan.memory.staging_tiles,
                          .training = plan.model.training,
                          .rules = plan.rules,
                          .durability = plan.options.durability,
                          .passes = visits.passes,
                          .visit_seconds = visits.seconds,
                          .forward_visits = visits.forward,
                          .spilled_gradients = plan.leaving_gradients(),
                          .laid = visits.laid},
                         seconds, host, rates);
}

// A model of equal units, each of which takes a second to update, one forward, two backward.
struct Chain {
    explicit Chain(std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            spec.units.push_back(unit_of(fmt::format("blocks.{}", i), std::int64_t{40960}));
            seconds.push_back({.forward = 1, .backward = 2, .update = 1, .norm = 0});
        }
    }
    zero::ModelSpec spec{.units = {}, .optimizers = adamw()};
    std::vector<UnitSeconds> seconds;
};

double bytes_per_step(const zero::SessionPlan& plan) {
    return plan.step_bytes.mean(plan.options.durability);
}

TEST(StepForecast, WithAFastDeviceAStepTakesWhatComputeTakes) {
    for (const UpdateWay order : orders) {
        const Chain chain(8);
        const zero::SessionPlan plan(chain.spec, options_of(order), ample_room(), {});
        const HostSeconds host{.driver_per_byte = 0, .commit = 0.5, .rest = 0.25, .threads = 2, .cores = 2};
        const StepForecast step = forecast(plan, chain.seconds, host, {.read = 1e18, .write = 1e18, .both = 1e18});
        // The last unit's forward is part of its backward; a deferred commit is made beside compute.
        const double commit = order == UpdateWay::deferred || order == UpdateWay::balanced ? 0 : 0.5;
        EXPECT_NEAR(step.seconds, 7 + 16 + 8 + 0.25 + commit, 1e-6) << word_of(order);
        EXPECT_NEAR(step.compute, 23, 1e-9);
        EXPECT_NEAR(step.updating, 8, 1e-9);
        EXPECT_NEAR(step.update, 8, 1e-6) << word_of(order);
        EXPECT_NEAR(step.forward, 7, 1e-6) << word_of(order);
        EXPECT_NEAR(step.backward, 16, 1e-6) << word_of(order);
    }
}

// Half of it each while both are at it: so the step takes longer, by less than twice.
TEST(StepForecast, ComputeAndTransfersSlowEachOtherDownOnlyWhileBothAreAtIt) {
    for (const UpdateWay order : orders) {
        const Chain chain(8);
        const zero::SessionPlan plan(chain.spec, options_of(order), ample_room(), {});
        const DeviceRates rates{.read = 2e6, .write = 2e6, .both = 3e6};
        const HostSeconds alone{.driver_per_byte = 0, .commit = 0, .rest = 0, .threads = 2, .cores = 2};
        HostSeconds shared = alone;
        shared.contention = {.compute = 0.5, .device = 0.5};
        const StepForecast fast = forecast(plan, chain.seconds, alone, rates);
        const StepForecast slow = forecast(plan, chain.seconds, shared, rates);
        EXPECT_EQ(fast.lost, 0);
        EXPECT_GT(slow.lost, 0.1) << word_of(order);
        EXPECT_NEAR(slow.seconds, fast.seconds + slow.lost, 0.2 * fast.seconds) << word_of(order);
        EXPECT_LT(slow.seconds, 2 * fast.seconds) << word_of(order);
        EXPECT_NEAR(slow.read_bytes + slow.write_bytes, fast.read_bytes + fast.write_bytes, 1e-3) << word_of(order);
        zero::CoreOptions in_memory = options_of(order);
        in_memory.residency = {zero::Tier::host, zero::Tier::host};
        in_memory.durability = {0};
        update_by(order == UpdateWay::speculative ? UpdateWay::deferred : order, in_memory);
        const zero::SessionPlan still(chain.spec, in_memory, ample_room(), {});
        EXPECT_EQ(forecast(still, chain.seconds, shared, rates).lost, 0) << "nothing moves";
    }
}

// Where compute takes no time, each phase takes what its bytes take.
TEST(StepForecast, WithFastComputeAStepTakesWhatItsBytesTake) {
    for (const UpdateWay order : orders) {
        const Chain chain(16);
        zero::CoreOptions options = options_of(order);
        options.staging_tiles = 40;
        const zero::SessionPlan plan(chain.spec, options, ample_room(), {});
        const std::vector<UnitSeconds> seconds(16);
        const StepForecast step = forecast(plan, seconds, {}, {.read = 1e6, .write = 1e6, .both = 1e6});
        const double all = bytes_per_step(plan) / 1e6;
        EXPECT_GE(step.seconds, all * 0.999) << word_of(order);
        EXPECT_LE(step.seconds, all * 1.25) << word_of(order);  // with the first reads and the last writes alone
    }
}

// Where they are the bottleneck, they take their time: backward cannot run ahead of what leaves.
TEST(StepForecast, GradientsOnNvmeTakeTheirBytesAndTheirTime) {
    for (const UpdateWay order : {UpdateWay::after_backward, UpdateWay::deferred}) {
        Chain chain(16);
        zero::CoreOptions options = options_of(order);
        const zero::SessionPlan host(chain.spec, options, ample_room(), {});
        options.gradient_memory = zero::GradientMemory::nvme;
        const zero::SessionPlan nvme(chain.spec, options, ample_room(), {});
        const double gradients = 16 * 40960 * 2;
        const DeviceRates rates{.read = 1e9, .write = gradients / 200, .both = 1e9};  // far longer than backward
        const StepForecast without = forecast(host, chain.seconds, {}, rates);
        const StepForecast with = forecast(nvme, chain.seconds, {}, rates);
        EXPECT_NEAR(with.read_bytes - without.read_bytes, gradients, 1) << word_of(order);
        EXPECT_NEAR(with.write_bytes - without.write_bytes, gradients, 1) << word_of(order);
        EXPECT_NEAR(static_cast<double>(nvme.step_bytes.write - host.step_bytes.write), gradients, 1);
        EXPECT_GT(with.backward, without.backward + 100) << word_of(order);
        EXPECT_GT(with.seconds, without.seconds + 100) << word_of(order);
    }
}

// Inputs of all units but the first and the last, two micro-batches of each.
zero::LaidAside inputs_of(std::size_t units, std::uint64_t bytes, std::uint64_t budget_bytes) {
    zero::LaidAside laid{.items = {}, .budget_bytes = budget_bytes};
    for (std::size_t unit = 1; unit + 1 < units; ++unit)
        for (std::uint64_t index = 0; index < 2; ++index)
            laid.items.push_back({.turn = (units - 1 - unit) * 2 + index,
                                  .bytes = bytes,
                                  .laid_in = unit,
                                  .taken_in = {2 * (units - 1) - unit}});
    return laid;
}

TEST(StepForecast, ActivationsThatFindNoRoomTakeTheirBytesAndTheirTime) {
    constexpr std::uint64_t each = 1 << 20;
    for (const UpdateWay order : orders) {
        const Chain chain(16);
        const zero::SessionPlan plan(chain.spec, options_of(order), ample_room(), {});
        OfVisits visits{.seconds = std::vector<double>(31, 1), .forward = 15};
        const DeviceRates fast{.read = 1e12, .write = 1e12, .both = 1e12};
        const StepForecast without = forecast(plan, chain.seconds, {}, fast, visits);
        visits.laid = inputs_of(16, each, 28 * each);
        const StepForecast within = forecast(plan, chain.seconds, {}, fast, visits);
        EXPECT_EQ(within.write_bytes, without.write_bytes + 1 * each) << "there is room for all, but not for two more";
        visits.laid = inputs_of(16, each, 8 * each);
        const StepForecast beyond = forecast(plan, chain.seconds, {}, fast, visits);
        const zero::ShelfBytes bytes = zero::shelf_bytes(visits.laid, 31);
        EXPECT_EQ(bytes.out, 21 * each) << word_of(order);
        EXPECT_NEAR(beyond.write_bytes - without.write_bytes, static_cast<double>(bytes.out), 1) << word_of(order);
        EXPECT_NEAR(beyond.read_bytes - without.read_bytes, static_cast<double>(bytes.in), 1) << word_of(order);
        EXPECT_NEAR(beyond.seconds, without.seconds, 0.01) << word_of(order) << ": they move beside compute";
        const DeviceRates slow{.read = 1e12, .write = each / 10.0, .both = 1e12};
        const StepForecast waiting = forecast(plan, chain.seconds, {}, slow, visits);
        EXPECT_GT(waiting.wait_spills, 100) << word_of(order);
        EXPECT_GT(waiting.forward, without.forward + 100) << word_of(order);
        EXPECT_NEAR(waiting.compute, without.compute, 1e-9) << word_of(order);
    }
}

TEST(StepForecast, WhatIsLaidAsideMustFindRoom) {
    EXPECT_THROW(zero::shelf_bytes(inputs_of(4, 8192, 4096), 7), Error);
    EXPECT_NO_THROW(zero::shelf_bytes(inputs_of(4, 10000, 10000), 7)) << "the pool has whole granules of both";
    EXPECT_EQ(zero::shelf_bytes(inputs_of(4, 4096, 4096), 7).out, 4 * 4096U);
}

TEST(StepForecast, OrdersThatOverlapAreFasterWhereTheDeviceAndComputeAreEvenlyBusy) {
    std::vector<double> seconds;
    for (const UpdateWay order : orders) {
        const Chain chain(24);
        zero::CoreOptions options = options_of(order);
        const zero::SessionPlan plan(chain.spec, options, ample_room(), {});
        const double rate = bytes_per_step(plan) / (24 * 4);
        seconds.push_back(forecast(plan, chain.seconds, {}, {.read = rate, .write = rate, .both = rate}).seconds);
    }
    EXPECT_LT(seconds[1], 0.9 * seconds[0]);
    EXPECT_LT(seconds[2], 0.9 * seconds[0]);
    EXPECT_EQ(seconds[2], seconds[3]);
    for (const double each : seconds) EXPECT_GE(each, 24 * 4);
    EXPECT_LT(seconds[4], 0.95 * std::min(seconds[1], seconds[2]));
    EXPECT_LT(seconds[4], 24 * 4 * 1.1);
}

// Its deferred update is made at rest, so that no unit of the next step can be updated within backward.
TEST(StepForecast, AUnitThatNoVisitNamesIsUpdatedWithAllOthersOfItsStep) {
    for (const UpdateWay order : orders) {
        Chain chain(8);
        for (std::uint32_t unit = 0; unit < 8; ++unit)
            if (unit != 3) chain.spec.training.push_back({{unit}});
        for (std::uint32_t unit = 8; unit-- > 0;)
            if (unit != 3) chain.spec.training.push_back({{unit}});
        zero::CoreOptions options = options_of(order);
        if (order == UpdateWay::balanced) options.deferred_share = 0.9;
        const zero::SessionPlan plan(chain.spec, options, ample_room(), {});
        const StepForecast step = forecast(plan, chain.seconds, {}, {.read = 1e6, .write = 1e6, .both = 1e6});
        EXPECT_NEAR(step.updating, 8, 1e-9) << word_of(order);
    }
}

// What is deferred is committed before anything of the next step is updated: where its last update comes just before
// the turn, backward begins by waiting for that.
TEST(StepForecast, ABalancedStepIsCommittedBeforeTheNextIsUpdated) {
    const auto seconds_with = [](double share, double commit) {
        const Chain chain(8);
        zero::CoreOptions options = options_of(UpdateWay::balanced);
        options.deferred_share = share;
        const zero::SessionPlan plan(chain.spec, options, ample_room(), {});
        const HostSeconds host{.driver_per_byte = 0, .commit = commit, .rest = 0, .threads = 1, .cores = 2};
        return forecast(plan, chain.seconds, host, {.read = 1e12, .write = 1e12, .both = 1e12}).seconds;
    };
    EXPECT_NEAR(seconds_with(0.2, 3), 7 + 16 + 8, 1e-3) << "unit 2 is deferred";
    EXPECT_NEAR(seconds_with(1, 3), 7 + 16 + 8 + 1, 1e-3) << "two seconds are those of the last unit's backward";
}

// Torch's work waits for the core that has the driver; pieces of an update go to the other cores.
TEST(StepForecast, TheDriverTakesTimeFromComputeWhereItHasNoCoreOfItsOwn) {
    const Chain chain(8);
    const zero::SessionPlan plan(chain.spec, options_of(UpdateWay::within), ample_room(), {});
    const double bytes = bytes_per_step(plan);
    const DeviceRates rates{.read = bytes, .write = bytes, .both = bytes};
    HostSeconds host{.driver_per_byte = 0, .threads = 2, .cores = 2};
    const double alone = forecast(plan, chain.seconds, host, rates).seconds;
    host.driver_per_byte = 0.8 / bytes;  // at the full rate, most of a core
    const StepForecast shared = forecast(plan, chain.seconds, host, rates);
    EXPECT_NEAR(shared.driver, 0.8, 0.01);
    EXPECT_GT(shared.seconds, alone + 0.3);
    EXPECT_LT(shared.seconds, alone + 0.81);
    host.cores = 3;
    EXPECT_EQ(forecast(plan, chain.seconds, host, rates).seconds, alone);
}

TEST(StepForecast, ADeferredStepIsCommittedBesideCompute) {
    const Chain chain(8);
    const HostSeconds host{.driver_per_byte = 0, .commit = 3, .rest = 0, .threads = 1, .cores = 2};
    const DeviceRates fast{.read = 1e12, .write = 1e12, .both = 1e12};
    const zero::SessionPlan deferred(chain.spec, options_of(UpdateWay::deferred), ample_room(), {});
    const zero::SessionPlan after(chain.spec, options_of(UpdateWay::after_backward), ample_room(), {});
    EXPECT_NEAR(forecast(deferred, chain.seconds, host, fast).commit, 0, 1e-6);
    EXPECT_NEAR(forecast(after, chain.seconds, host, fast).commit, 3, 1e-6);
}

// Backward has the weights of the units that are in memory, and then waits.
TEST(StepForecast, WhatIsReadBesideADeferredCommitWaitsForIt) {
    const Chain chain(8);
    const zero::SessionPlan plan(chain.spec, options_of(UpdateWay::deferred), ample_room(), {});
    const DeviceRates fast{.read = 1e12, .write = 1e12, .both = 1e12};
    const StepForecast brief = forecast(plan, chain.seconds, {.commit = 0.5, .threads = 1, .cores = 2}, fast);
    const StepForecast longer = forecast(plan, chain.seconds, {.commit = 14, .threads = 1, .cores = 2}, fast);
    EXPECT_NEAR(brief.wait_weights, 0, 1e-3);
    EXPECT_GT(longer.wait_weights, 1);
    EXPECT_LT(longer.wait_weights, 14);
    EXPECT_NEAR(longer.seconds - brief.seconds, longer.wait_weights + longer.wait_tiles, 1e-3);
}

// Of one unit of ten tiles, each of which takes a second to be read, one to be updated and one to be written.
TEST(StepForecast, WithOneSlotATileWaitsForTheOneBeforeItToBeWritten) {
    const auto update_with = [](std::uint32_t slots) {
        Chain chain(1);
        chain.seconds.front() = {.forward = 0, .backward = 0, .update = 10, .norm = 0};
        zero::CoreOptions options = options_of(UpdateWay::after_backward);
        options.staging_tiles = slots;
        const zero::SessionPlan plan(chain.spec, options, ample_room(), {});
        const DeviceRates rates{.read = 40960, .write = 49152, .both = 98304};  // split: 10 bytes, 12 bytes
        return forecast(plan, chain.seconds, {}, rates).update;
    };
    EXPECT_NEAR(update_with(1), 30, 2.1);  // and the weights
    EXPECT_NEAR(update_with(2), 15, 2.1);
    EXPECT_LT(update_with(4), 15);
}

// Weights that are still written from a place in the window keep it.
TEST(StepForecast, AFetchWaitsForWhatIsWrittenFromItsPlace) {
    const auto seconds_with = [](std::uint32_t depth) {
        Chain chain(2);
        for (UnitSeconds& unit : chain.seconds) unit = {};
        zero::CoreOptions options = options_of(UpdateWay::after_backward);
        options.residency = {zero::Tier::nvme, zero::Tier::host};
        options.prefetch_depth = depth;
        options.staging_tiles = 20;
        const zero::SessionPlan plan(chain.spec, options, ample_room(), {});
        // A unit's weights take 5 s to be read, its tiles 10 s to be written.
        const DeviceRates rates{.read = 81920.0 / 5, .write = 49152, .both = 1e6};
        const StepForecast step = forecast(plan, chain.seconds, {}, rates);
        return step.update + step.commit;
    };
    EXPECT_NEAR(seconds_with(0), 5 + 10 + 5 + 10, 1e-6);
    EXPECT_NEAR(seconds_with(1), 5 + 10 + 10, 1e-6);
}

TEST(StepForecast, SecondsByVisitAreThoseByUnitWhereEachUnitIsVisitedTwice) {
    for (const UpdateWay order : orders) {
        Chain chain(8);
        const zero::SessionPlan plan(chain.spec, options_of(order), ample_room(), {});
        const double rate = bytes_per_step(plan) / 40;
        const DeviceRates rates{.read = rate, .write = rate, .both = rate};
        const StepForecast by_unit = forecast(plan, chain.seconds, {}, rates);
        OfVisits visits{.seconds = std::vector<double>(15, 2), .forward = 7};
        std::fill_n(visits.seconds.begin(), 7, 1);
        for (UnitSeconds& unit : chain.seconds) unit = {.forward = 9, .backward = 9, .update = 1, .norm = 0};
        const StepForecast by_visit = forecast(plan, chain.seconds, {}, rates, visits);
        EXPECT_EQ(by_visit.seconds, by_unit.seconds) << word_of(order);
        EXPECT_EQ(by_visit.forward, by_unit.forward) << word_of(order);
        EXPECT_EQ(by_visit.backward, by_unit.backward) << word_of(order);
    }
}

// A tied head is visited as the embedding: four times, each of which takes another time.
TEST(StepForecast, AUnitMayTakeAnotherTimeAtEachVisit) {
    for (const UpdateWay order : orders) {
        Chain chain(2);
        chain.spec.training = {{{0}}, {{1}}, {{0}}, {{0}}, {{1}}, {{0}}};
        const zero::SessionPlan plan(chain.spec, options_of(order), ample_room(), {});
        const OfVisits visits{.seconds = {1, 2, 4, 8, 16, 32}, .forward = 3};
        const StepForecast step =
            forecast(plan, chain.seconds, {}, {.read = 1e18, .write = 1e18, .both = 1e18}, visits);
        EXPECT_NEAR(step.forward, 1 + 2 + 4, 1e-6) << word_of(order);
        EXPECT_NEAR(step.backward, 8 + 16 + 32, 1e-6) << word_of(order);
        EXPECT_NEAR(step.update, 2, 1e-6) << word_of(order);
    }
}

TEST(StepForecast, PassesBeforeAnUpdateEachReadTheWeightsAndCompute) {
    for (const UpdateWay order : orders) {
        const Chain chain(8);
        const zero::SessionPlan plan(chain.spec, options_of(order), ample_room(), {});
        const DeviceRates rates{.read = 1e6, .write = 1e6, .both = 2e6};
        const OfVisits once{.seconds = std::vector<double>(15, 1), .forward = 7};
        OfVisits thrice = once;
        thrice.passes = 3;
        const StepForecast one = forecast(plan, chain.seconds, {}, rates, once);
        const StepForecast three = forecast(plan, chain.seconds, {}, rates, thrice);
        EXPECT_NEAR(three.compute, 3 * one.compute, 1e-9) << word_of(order);
        EXPECT_NEAR(three.updating, one.updating, 1e-9) << word_of(order);
        EXPECT_NEAR(three.write_bytes, one.write_bytes, 1e-3) << word_of(order);
        EXPECT_GT(three.read_bytes, one.read_bytes + 8 * 40960 * 2) << word_of(order);
    }
}

// As a session's counters have it (SpilledGradientsTest).
TEST(StepForecast, GradientsThatLeaveAreWrittenByEachPassAndReadByTheNextOne) {
    for (const UpdateWay order : orders)
        for (const std::uint64_t passes : {1, 3}) {
            const Chain chain(8);
            zero::CoreOptions options = options_of(order);
            const zero::SessionPlan stay(chain.spec, options, ample_room(), {});
            options.gradient_memory = zero::GradientMemory::nvme;
            const zero::SessionPlan leave(chain.spec, options, ample_room(), {});
            const OfVisits visits{.seconds = {}, .forward = 0, .passes = passes};
            const DeviceRates rates{.read = 1e6, .write = 1e6, .both = 2e6};
            const StepForecast without = forecast(stay, chain.seconds, {}, rates, visits);
            const StepForecast with = forecast(leave, chain.seconds, {}, rates, visits);
            const auto others = static_cast<double>(passes - 1);
            double written = 0, read = 0;
            for (std::uint32_t unit = 0; unit < 8; ++unit) {
                const auto bytes = static_cast<double>(leave.leaving_gradients()[unit]);
                const bool by_update = !is_within_backward(order) || leave.rules.deferred[unit];
                written += bytes * (order == UpdateWay::within ? others : others + 1);
                read += bytes * (by_update ? others + 1 : others);
            }
            EXPECT_NEAR(with.write_bytes - without.write_bytes, written, 1e-3) << word_of(order) << passes;
            EXPECT_NEAR(with.read_bytes - without.read_bytes, read, 1e-3) << word_of(order) << passes;
            const zero::StepBytes& said = leave.step_bytes;
            EXPECT_NEAR(with.read_bytes,
                        static_cast<double>(said.read) + others * static_cast<double>(said.further_read), 1e-3);
            EXPECT_NEAR(with.write_bytes,
                        static_cast<double>(said.write) + others * static_cast<double>(said.further_write), 1e-3);
        }
}

struct RandomModel {
    zero::ModelSpec spec{.units = {}, .optimizers = adamw()};
    zero::CoreOptions options;
    std::vector<UnitSeconds> seconds;
};

// Sizes from less than a tile to many, ties, resident and frozen ones; any codec, tier, depth and number of slots.
RandomModel random_model(Random& random) {
    RandomModel model;
    const auto units = static_cast<std::uint32_t>(draw(random, 1, 12));
    for (std::uint32_t i = 0; i < units; ++i) {
        zero::UnitSpec unit = unit_of(fmt::format("u{}", i), static_cast<std::int64_t>(draw(random, 1, 60000)));
        if (draw(random, 0, 7) == 0)
            unit.parameters.push_back({.name = "frozen",
                                       .shape = {static_cast<std::int64_t>(draw(random, 1, 30000))},
                                       .training = zero::Training::frozen});
        if (i > 0 && draw(random, 0, 7) == 0)
            unit.borrowed.push_back({.owner = static_cast<std::uint32_t>(draw(random, 0, i - 1)), .parameter = 0});
        unit.resident = draw(random, 0, 7) == 0;
        model.spec.units.push_back(std::move(unit));
        const auto some = [&] { return static_cast<double>(draw(random, 0, 1000)) / 1000; };
        model.seconds.push_back({.forward = some(), .backward = some(), .update = some(), .norm = some() / 10});
    }
    const UpdateWay way = orders[draw(random, 0, 4)];
    model.options = options_of(way);
    const std::optional<double> share =
        draw(random, 0, 1) == 0 ? std::optional(0.1 * static_cast<double>(draw(random, 0, 10))) : std::nullopt;
    constexpr const char* codecs[] = {"split", "plain_fp32", "plain_bf16", "compact"};
    model.options.codec = codecs[draw(random, 0, 3)];
    model.options.prefetch_depth = static_cast<std::uint32_t>(draw(random, 0, 5));
    model.options.staging_tiles = static_cast<std::uint32_t>(draw(random, 1, 6));
    const auto tier = [&] { return draw(random, 0, 2) == 0 ? zero::Tier::host : zero::Tier::nvme; };
    constexpr std::uint64_t commits[] = {1, 1, 1, 4, 0};
    const bool free = way != UpdateWay::speculative;
    if (free) model.options.residency = {tier(), tier()};
    if (free) model.options.durability = {commits[draw(random, 0, 4)]};
    update_by(way, model.options, share);
    if (free && draw(random, 0, 2) == 0) {
        const zero::SessionPlan least(model.spec, model.options, ample_room(), {});
        model.options.host_budget_bytes = least.memory.budget.used_bytes() + draw(random, 0, 3000000);
        model.options.fill_host_budget = true;
        update_by(way, model.options, share);
    }
    return model;
}

// Never waits for what does not come (checked within), moves each byte as often as the plan says, and takes no less
// than each lane and no more than all of them one after the other.
TEST(StepForecast, OfThousandsOfModelsMovesWhatThePlanSaysAndTakesWhatTheLanesAllow) {
    for (std::uint64_t seed = 1; seed <= 4000; ++seed) {
        Random random(seed);
        const RandomModel model = random_model(random);
        SCOPED_TRACE(fmt::format("seed {}, {}", seed, word_of(model.options.update_order)));
        const zero::SessionPlan plan(model.spec, model.options, ample_room(), {});
        const auto rate = [&] { return static_cast<double>(draw(random, 1, 1000)) * 1e4; };
        DeviceRates rates{.read = rate(), .write = rate(), .both = 0};
        rates.both = std::max(rates.read, rates.write);
        const HostSeconds host{.driver_per_byte = 0,
                               .commit = static_cast<double>(draw(random, 0, 10)) / 10,
                               .rest = 0.1,
                               .threads = 2,
                               .cores = 2};
        const StepForecast step = forecast(plan, model.seconds, host, rates);
        // Where nobody waits for a commit, what is written at the end of a step is of no certain one.
        const bool overlaps = plan.rules.defers_others && plan.options.durability.commit_steps != 1;
        const double tile = 14.0 * static_cast<double>(plan.options.tile_numel);
        const double over = 1 + (overlaps ? tile * plan.memory.staging_tiles : 0);
        EXPECT_NEAR(step.read_bytes + step.write_bytes, bytes_per_step(plan), over);
        EXPECT_NEAR(step.read_bytes, static_cast<double>(plan.step_bytes.read), over);
        const double slack = 1e-6 * step.seconds + 1e-9;
        const double busy = step.compute + step.updating + host.rest;
        EXPECT_GE(step.seconds + slack, busy);
        EXPECT_GE(step.seconds + slack, step.read_bytes / rates.read);
        EXPECT_GE(step.seconds + slack, step.write_bytes / rates.write);
        EXPECT_GE(step.seconds + slack, (step.read_bytes + step.write_bytes) / rates.both);
        EXPECT_LE(step.seconds,
                  busy + host.commit + step.read_bytes / rates.read + step.write_bytes / rates.write + slack);
        EXPECT_NEAR(step.seconds, step.forward + step.backward + step.update + step.commit + host.rest, slack);
        if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace penstock::testing
