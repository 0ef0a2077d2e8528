// What a session decides, and what a forecast of it does: the same, over models, orders, budgets and passes from a
// seed, whatever the session's drive does meanwhile.
#include "aio/backend.h"
#include "tests/seeds.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/moody_backend.h"
#include "tests/zero_infinity/session/session_client.h"
#include "zero_infinity/forecast/step_replay.h"
#include "zero_infinity/order/update_sequence.h"
#include "zero_infinity/plan/session_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::BegunUpdate;
using Units = std::vector<std::uint32_t>;

// Between a step order and its hands.
class Heard final : public zero::StepHands {
   public:
    std::span<const zero::Visit> expected() const override { return hands->expected(); }
    void begin(const BegunUpdate& update) override {
        say(fmt::format("begin {} of {} again {} {}", fmt::join(update.units, ","), static_cast<int>(update.of),
                        fmt::join(update.again, ","), update.commits ? "commits" : ""));
        hands->begin(update);
    }
    void update(std::uint32_t unit) override {
        say(fmt::format("update {}", unit));
        hands->update(unit);
    }
    void end_of_residents() override { hands->end_of_residents(); }
    void end_of_step() override {
        say("end of step");
        hands->end_of_step();
    }
    void begin_commit() override {
        say("begin commit");
        hands->begin_commit();
    }
    void finish_commit() override {
        say("finish commit");
        hands->finish_commit();
    }
    void finish_writes() override { hands->finish_writes(); }
    void arrived(std::span<const std::uint32_t> units) override {
        say(fmt::format("{} compute", fmt::join(units, ",")));
    }
    void undo(const Units& units) override {
        say(fmt::format("undo {}", fmt::join(units, ",")));
        hands->undo(units);
    }
    zero::StepWatch watch() {
        return [this](zero::StepHands& given) -> zero::StepHands& {
            hands = &given;
            return *this;
        };
    }

    std::vector<std::string> said;

   private:
    void say(std::string what) { said.push_back(std::move(what)); }
    zero::StepHands* hands = nullptr;
};

// A training and its forecast.
class Twins {
   public:
    Twins(const std::string& directory, std::uint64_t seed) : random_(seed), directory_(directory) {
        setting_.order = static_cast<zero::UpdateWay>(draw(5));
        setting_.deferred_share = static_cast<double>(draw(11)) / 10;
        const bool whole = setting_.order == zero::UpdateWay::speculative;  // all on NVMe, all committed
        if (draw(3) == 0 && !whole) setting_.residency.weights = zero::Tier::host;
        if (draw(3) == 0 && !whole) setting_.residency.states = zero::Tier::host;
        for (std::uint32_t unit = 0; unit < 5; ++unit)
            if (draw(5) == 0) setting_.resident_units.push_back(unit);
        setting_.durability.commit_steps = draw(2) == 0 || whole ? 1 : draw(4);
        setting_.depth = static_cast<std::uint32_t>(1 + draw(3));
        passes_ = 1 + draw(2);
        moods_ = {.stops_percent = static_cast<int>(draw(20)), .stop = std::chrono::microseconds(200 * draw(10))};
    }

    void train(std::uint64_t steps) {
        zero::SessionSeams seams;
        std::uint64_t backends = 0;
        seams.backend = [&](const store::StoreDirectory&) {
            auto device = aio::make_thread_backend({.depth = 16, .threads_per_device = 1});
            return aio::ChosenBackend{std::make_unique<MoodyBackend>(std::move(device), moods_, ++backends), {}};
        };
        seams.steps = trained_.watch();
        Client client(directory_, setting_, seams);
        const zero::ModelLayout& layout = client.session().layout();
        zero::PassVisits visits = visits_of(client.session());
        forecast(layout, visits, steps);
        client.session().expect(zero::Pass::training, visits);
        for (std::uint64_t step = 1; step <= steps; ++step) {
            for (std::uint64_t pass = 1; pass <= passes_; ++pass) {
                const zero::UpdateRequest request{.values = {.step = step, .learning_rate = 1e-2}};
                const bool begins = pass == passes_ && client.session().is_worth_beginning(request);
                if (begins) client.session().begin_step(request);
                make_pass(client, begins, step);
            }
            client.update(step);
        }
        EXPECT_GE(trained_.said.size(), (10 * passes_ + 1) * steps);
        EXPECT_EQ(trained_.said, forecast_.said);
    }

   private:
    std::size_t draw(std::size_t below) { return random_() % below; }

    // Forward over all units and back; borrowers' owners with them, as the session makes it.
    static zero::PassVisits visits_of(const zero::CoreSession& session) {
        std::vector<zero::UnitSpec> units;
        for (std::uint32_t unit = 0; unit < session.layout().unit_count(); ++unit)
            units.push_back(session.layout().unit(unit).spec());
        zero::PassVisits visits;
        for (std::uint32_t unit = 0; unit < 5; ++unit) visits.push_back(with_owners({{unit}}, units));
        for (std::uint32_t unit = 5; unit-- > 0;) visits.push_back(with_owners({{unit}}, units));
        return visits;
    }

    void make_pass(Client& client, bool completes, std::uint64_t step) {
        client.session().begin_pass(zero::Pass::training);
        for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
        for (std::uint32_t unit = 5; unit-- > 0;) {
            client.backward(unit, step);
            if (completes) client.session().complete(unit);
        }
        client.session().end_pass();
    }

    zero::StepRules rules(const zero::ModelLayout& layout) const {
        const bool balanced = setting_.order == zero::UpdateWay::balanced;
        zero::CoreOptions options;
        options.residency = setting_.residency;
        options.durability = setting_.durability;
        zero::update_by(setting_.order, options, setting_.deferred_share);
        return {.order = options.update_order,
                .deferred = zero::deferred_units(layout, balanced ? *setting_.deferred_share : 0),
                .undoes = options.clips,
                .defers_others = may_defer(setting_.order) && is_within_backward(setting_.order)};
    }

    void forecast(const zero::ModelLayout& layout, const zero::PassVisits& visits, std::uint64_t steps) {
        zero::StepSetting setting{.layout = &layout,
                                  .window = {.window_bytes = 1 << 20, .depth = setting_.depth},
                                  .staging_tiles = 4,
                                  .training = visits,
                                  .rules = rules(layout),
                                  .durability = setting_.durability,
                                  .passes = passes_,
                                  .steps = forecast_.watch()};
        const std::vector<zero::UnitSeconds> seconds(5, {.forward = 1, .backward = 2, .update = 1, .norm = 0});
        const zero::HostSeconds host{.threads = 1, .cores = 2};
        zero::StepReplay replay(setting, seconds, host, {.read = 1e6, .write = 1e6, .both = 1e6});
        for (std::uint64_t step = 1; step <= steps; ++step) replay.step(setting_.durability.commits_after(step));
    }

    std::mt19937_64 random_;
    std::string directory_;
    Setting setting_;
    Moods moods_;
    std::uint64_t passes_ = 1;
    Heard trained_, forecast_;
};

class SameDecisionsTest : public ComputeTest {};

TEST_F(SameDecisionsTest, ASessionAndItsForecastDecideAlike) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(60) && !HasFailure(); ++seed) {
        SCOPED_TRACE(replay(seed));
        const TemporaryDirectory parent;
        Twins(parent.path() + "/swap", seed).train(4);
    }
}

}  // namespace
}  // namespace penstock::testing
