// Gradients that are on NVMe between their uses are those of host memory, to the bit, whatever a client does with them.
#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/seeds.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/session/moody_backend.h"
#include "tests/zero_infinity/session/session_client.h"
#include "zero_infinity/plan/gradient_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace penstock::testing {
namespace {

using zero::GradientMemory;
using zero::UpdateWay;

Setting on_nvme(Setting setting) {
    setting.gradient_memory = GradientMemory::nvme;
    return setting;
}

class SpilledGradientsTest : public ComputeTest {
   protected:
    std::string path(const std::string& name = "swap") const { return parent_ / name; }

   private:
    const TemporaryDirectory parent_;
};

// Two sessions that differ in where their gradients are, and what is done to both.
class Twins {
   public:
    // The device of the spill stops for a while now and then.
    Twins(const std::string& directory, const Setting& setting, std::uint64_t seed)
        : host_(directory + "-host", setting), nvme_(directory + "-nvme", on_nvme(setting), slow(seed)) {}

    template <typename Call>
    void both(Call call) {
        call(host_);
        call(nvme_);
    }
    void complete(std::uint32_t unit) { nvme_.session().complete(unit); }
    void expect_equal_norms() { EXPECT_EQ(host_.session().gradient_norm(), nvme_.session().gradient_norm()); }
    void update(std::uint64_t step, double clip) {
        EXPECT_EQ(host_.update(step, clip).gradient_norm, nvme_.update(step, clip).gradient_norm);
    }
    bool are_equal() { return host_.state() == nvme_.state(); }

   private:
    static zero::SessionSeams slow(std::uint64_t seed) {
        return {.backend = [seed](const store::StoreDirectory&) {
            return aio::ChosenBackend{
                std::make_unique<MoodyBackend>(aio::make_thread_backend({.depth = 16, .threads_per_device = 1}),
                                               Moods{.stops_percent = 2, .stop = std::chrono::milliseconds(1)}, seed),
                {}};
        }};
    }

    Client host_, nvme_;
};

TEST_F(SpilledGradientsTest, WhateverAClientDoesTheBitsAreThoseOfHostMemory) {
    const std::uint64_t first = first_seed(), count = seed_count(12);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(mix(seed));
        const auto one_in = [&](std::uint64_t of) { return random() % of == 0; };
        Setting setting{.device = devices().at(random() % devices().size()),
                        .depth = static_cast<std::uint32_t>(random() % 4)};
        setting.order = one_in(2) ? UpdateWay::deferred : UpdateWay::after_backward;
        if (one_in(3)) setting.residency = {zero::Tier::host, zero::Tier::host};
        if (one_in(3)) setting.resident_units = {static_cast<std::uint32_t>(random() % 4)};
        if (setting.resident_units.empty() && one_in(2)) setting.device_budget = tight_device_budget;
        Twins twins(path(std::to_string(seed)), setting, seed);
        for (std::uint64_t step = 1; step <= 3; ++step) {
            const std::uint64_t passes = 1 + random() % 3;
            for (std::uint64_t pass = 1; pass <= passes; ++pass) {
                std::vector<std::uint32_t> visited = {4, 3, 2, 1, 0};  // the last pass reaches each of them
                if (pass < passes || one_in(2)) std::shuffle(visited.begin(), visited.end(), random);
                for (std::uint64_t more = random() % 4; more > 0; --more)
                    visited.insert(visited.begin(), static_cast<std::uint32_t>(random() % 5));
                twins.both([](Client& client) { client.session().begin_pass(Pass::training); });
                for (const std::uint32_t unit : visited) {
                    const std::uint64_t time = random() % 100;
                    twins.both([&](Client& client) { client.backward(unit, time); });
                    if (one_in(2)) twins.complete(unit);
                    if (!one_in(6) || pass == passes) continue;
                    const ParameterId cleared =
                        parameters_of(units(), static_cast<std::uint32_t>(random() % 5)).front();
                    twins.both([&](Client& client) { client.session().clear_gradient(cleared); });
                }
                twins.both([](Client& client) { client.session().end_pass(); });
                if (one_in(2)) twins.expect_equal_norms();
                if (pass < passes && one_in(6)) twins.both([](Client& client) { client.session().clear_gradients(); });
            }
            twins.update(step, one_in(2) ? 1e-3 : 0);
        }
        ASSERT_TRUE(twins.are_equal());
    }
}

// Of whoever has nothing to keep in host memory: all but the last unit, which borrows.
std::uint64_t leaving_bytes() {
    std::uint64_t bytes = 0;
    for (std::uint32_t unit = 0; unit < 4; ++unit) {
        std::uint64_t numel = 0;
        for (const ParameterId id : parameters_of(units(), unit)) numel += (numel_of(units(), id) + 63) / 64 * 64;
        bytes += pool::whole_granules(4 * numel);
    }
    return bytes;
}

void make_pass(Client& client, std::uint64_t time, bool completes) {
    client.session().begin_pass(Pass::training);
    for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
    for (std::uint32_t unit = 5; unit-- > 0;) {
        client.backward(unit, time);
        if (completes) client.session().complete(unit);
    }
    client.session().end_pass();
}

// Each pass writes them once, and brings back what the one before wrote; the update reads them once.
TEST_F(SpilledGradientsTest, TheirTrafficIsThatOfThePlanToTheByte) {
    for (const UpdateWay order : {UpdateWay::after_backward, UpdateWay::deferred})
        for (const bool completes : {false, true})
            for (const std::uint64_t passes : {1, 3}) {
                Setting setting = on_nvme({});
                setting.order = order;
                Client client(path(fmt::format("{} {} {}", word_of(order), completes, passes)), setting);
                EXPECT_EQ(client.session().counters().spill_write_bytes, 0U);
                for (std::uint64_t step = 1; step <= 2; ++step) {
                    for (std::uint64_t pass = 0; pass < passes; ++pass) make_pass(client, step, completes);
                    client.update(step, 1e-3);
                }
                client.session().settle();
                const zero::SessionCounters counters = client.session().counters();
                EXPECT_EQ(counters.spill_write_bytes, 2 * passes * leaving_bytes());
                EXPECT_EQ(counters.spill_read_bytes, 2 * passes * leaving_bytes());
            }
}

TEST_F(SpilledGradientsTest, AStepMovesWhatThePlanSays) {
    std::vector<zero::SessionCounters> moved;
    std::vector<zero::StepBytes> planned;
    for (const Setting& setting : {Setting{}, on_nvme({})}) {
        Client client(path(std::to_string(moved.size())), setting);
        for (std::uint64_t step = 1; step <= 3; ++step) {
            const zero::SessionCounters before = client.session().counters();
            make_pass(client, step, false);
            client.update(step);
            if (step < 3) continue;
            moved.push_back(client.session().counters());
            moved.back().read_bytes -= before.read_bytes;
            moved.back().write_bytes -= before.write_bytes;
        }
        planned.push_back(client.session().info().step_bytes);
    }
    EXPECT_EQ(moved[1].read_bytes - moved[0].read_bytes, leaving_bytes());
    EXPECT_EQ(moved[1].write_bytes - moved[0].write_bytes, leaving_bytes());
    EXPECT_EQ(planned[1].read - planned[0].read, leaving_bytes());
    EXPECT_EQ(planned[1].write - planned[0].write, leaving_bytes());
}

// What backward has left in host memory is updated with from there; again, from NVMe, where it is clipped after all,
// in the next pass.
TEST_F(SpilledGradientsTest, SpeculationReadsThemOnlyWhereItFails) {
    Setting setting = on_nvme({});
    setting.order = UpdateWay::speculative;
    Client client(path(), setting);
    for (const auto& [step, clip] : {std::pair{1, 1e9}, {2, 1e-3}, {3, 1e9}}) {
        const zero::SessionCounters before = client.session().counters();
        client.session().begin_step(
            {.values = {.step = static_cast<std::uint64_t>(step), .learning_rate = 1e-2}, .clip = clip});
        make_pass(client, 1, true);
        EXPECT_EQ(client.update(step, clip).updated_again, step == 2);
        const zero::SessionCounters after = client.session().counters();
        EXPECT_EQ(after.spill_write_bytes - before.spill_write_bytes, leaving_bytes()) << step;
        // They begin to come back as soon as step 2 is over.
        if (step != 2) {
            EXPECT_EQ(after.spill_read_bytes, step == 3 ? leaving_bytes() : 0) << step;
        }
    }
}

// Those of a pass before it have left, and are read once.
TEST_F(SpilledGradientsTest, WhatIsUpdatedInBackwardDoesNotLeave) {
    Setting setting = on_nvme({});
    setting.order = UpdateWay::within;
    Client client(path(), setting);
    std::uint64_t moved = 0;
    for (std::uint64_t step = 1; step <= 3; ++step) {
        if (step == 2) make_pass(client, step, false);
        client.session().begin_step({.values = {.step = step, .learning_rate = 1e-2}});
        make_pass(client, step, true);
        client.update(step);
        if (step == 2) moved = leaving_bytes();
        EXPECT_EQ(client.session().counters().spill_write_bytes, moved) << step;
        EXPECT_EQ(client.session().counters().spill_read_bytes, moved) << step;
    }
}

TEST_F(SpilledGradientsTest, AGradientHasNoAddressToStayAtAndTheSessionGoesOn) {
    Client client(path(), on_nvme({}));
    make_pass(client, 1, false);
    const std::string refusal = refusal_of(ExitCode::usage, [&] { client.session().gradient({1, 0}); });
    EXPECT_NE(refusal.find("unit 'second'"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("keep gradients in host memory"), std::string::npos) << refusal;
    EXPECT_TRUE(client.session().gradient({4, 0})) << "those of a unit that borrows stay";
    EXPECT_TRUE(client.update(1).committed);
}

TEST_F(SpilledGradientsTest, WhatIsNotFiniteIsFoundWhereItIs) {
    if (devices().front() != zero::DeviceKind::cpu) GTEST_SKIP() << "it is added in host memory";
    for (const std::uint32_t unit : {3U, 1U}) {
        Client client(path(std::to_string(unit)), on_nvme({}));
        make_pass(client, 1, false);
        client.session().begin_pass(Pass::training);
        for (const std::uint32_t each : {unit, 2U, 0U}) {
            client.session().visit({{each}});
            if (each != unit) continue;
            Values values(numel_of(units(), {unit, 0}));
            values.back() = std::numeric_limits<float>::infinity();
            client.session().add_gradient(
                {unit, 0}, {reinterpret_cast<const std::byte*>(values.data()), zero::PlaneType::fp32, values.size()});
        }
        client.session().end_pass();
        const std::string refusal = refusal_of(ExitCode::non_finite, [&] { client.update(1); });
        EXPECT_NE(refusal.find(fmt::format("first in unit '{}', parameter 'a'", units()[unit].name)), std::string::npos)
            << refusal;
    }
}

std::vector<zero::UnitSpec> many_units() {
    std::vector<zero::UnitSpec> all;
    for (int unit = 0; unit < 12; ++unit) all.push_back({fmt::format("unit{}", unit), {{"w", {9000}}}});
    return all;
}

zero::CoreOptions options_of(GradientMemory memory, const std::string& directory) {
    zero::CoreOptions options;
    options.swap_directories = {directory};
    options.job = "spilled";
    options.codec = "plain_fp32";
    options.gradient_type = zero::PlaneType::fp32;
    options.tile_numel = 4096;
    options.host_budget_bytes = zero::planned_host_budget;
    options.prefetch_depth = 1;
    options.staging_tiles = 2;
    options.gradient_memory = memory;
    options.names.gradient_memory = "where gradients are";
    return options;
}

std::uint64_t used_by(const pool::Budget& budget, const std::string& name) {
    for (const pool::Use& use : budget.uses())
        if (use.name == name) return use.bytes;
    return 0;
}

zero::SessionPlan plan_of(const zero::CoreOptions& options) {
    return {{.units = many_units(), .optimizers = zero::make_adamw({})}, options, ample_room(), {}};
}

TEST_F(SpilledGradientsTest, TheyLeaveByThemselvesOnlyWhereThatMakesTheRestFit) {
    const auto planned = [](GradientMemory memory, std::uint64_t budget_bytes, bool may_leave) {
        zero::CoreOptions options = options_of(memory, "nowhere");
        options.host_budget_bytes = budget_bytes;
        options.prefetch_depth = 0;
        options.gradients_may_leave = may_leave;
        return plan_of(options).options.gradient_memory;
    };
    const auto least = [](GradientMemory memory) {
        zero::CoreOptions options = options_of(memory, "nowhere");
        options.prefetch_depth = 0;
        return plan_of(options).memory.budget.used_bytes();
    };
    using enum GradientMemory;
    ASSERT_LT(least(nvme), least(all_units));
    EXPECT_EQ(planned(all_units, zero::planned_host_budget, true), all_units);
    EXPECT_EQ(planned(all_units, least(all_units), true), all_units);
    EXPECT_EQ(planned(all_units, least(all_units) - 1, true), nvme);
    EXPECT_EQ(planned(all_units, least(nvme), true), nvme);
    EXPECT_NE(refusal_of(ExitCode::does_not_fit, [&] { planned(all_units, least(all_units) - 1, false); }), "accepted");
    const std::string own = refusal_of(ExitCode::does_not_fit, [&] { planned(all_units, least(nvme) - 1, false); });
    EXPECT_EQ(refusal_of(ExitCode::does_not_fit, [&] { planned(all_units, least(nvme) - 1, true); }), own);
}

// The norms of its steps.
std::vector<double> norms_of(const zero::CoreOptions& options) {
    const std::vector<zero::UnitSpec> all = many_units();
    zero::WeightFunction source([](const auto&, std::uint64_t first, std::span<float> out) {
        for (std::uint64_t i = 0; i < out.size(); ++i) out[i] = first_value(0, 0, first + i);
    });
    zero::CoreSession session({.units = all, .optimizers = zero::make_adamw({})}, options, ample_room(), {}, {},
                              {.weights = &source});
    std::vector<double> norms;
    for (std::uint64_t step = 1; step <= 4; ++step) {
        session.begin_pass(Pass::training);
        for (std::uint32_t unit = 12; unit-- > 0;) {
            session.visit({{unit}});
            const zero::ParameterMemory weights = session.weights({unit, 0});
            const Values gradient =
                gradient_of(reinterpret_cast<const float*>(weights.data), weights.numel, step + unit);
            session.add_gradient({unit, 0}, {reinterpret_cast<const std::byte*>(gradient.data()), zero::PlaneType::fp32,
                                             gradient.size()});
        }
        session.end_pass();
        norms.push_back(
            session.update({.values = {.step = step, .learning_rate = 1e-2}, .clip = 0.5}, no_state).gradient_norm);
    }
    return norms;
}

TEST_F(SpilledGradientsTest, AModelWhoseGradientsAloneExceedTheBudgetTrains) {
    zero::CoreOptions spilled = options_of(GradientMemory::nvme, path("spilled"));
    const zero::SessionPlan least = plan_of(spilled);
    const std::uint64_t gradients =
        zero::gradient_bytes(least.layout, zero::PlaneType::fp32, GradientMemory::all_units);
    spilled.host_budget_bytes = least.memory.budget.used_bytes();
    ASSERT_LT(spilled.host_budget_bytes, gradients);
    const std::uint64_t unit_bytes = pool::whole_granules(9000 * 4 + 64);
    EXPECT_EQ(used_by(least.memory.budget, zero::gradients_use), 2 * unit_bytes);
    EXPECT_EQ(used_by(least.memory.budget, zero::staging_use), 2 * (least.layout.staging_tile_bytes() + 4 * 4096));

    zero::CoreOptions host = options_of(GradientMemory::all_units, path("host"));
    host.host_budget_bytes = spilled.host_budget_bytes;
    const std::string refusal = refusal_of(ExitCode::does_not_fit, [&] { plan_of(host); });
    EXPECT_NE(refusal.find("where gradients are (gradients)"), std::string::npos) << refusal;
    host.host_budget_bytes = zero::planned_host_budget;
    EXPECT_EQ(norms_of(spilled), norms_of(host));
}

}  // namespace
}  // namespace penstock::testing
