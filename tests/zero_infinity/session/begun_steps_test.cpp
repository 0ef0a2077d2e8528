// Steps that are begun before their last pass are those of the plain loop: in each order that updates units within
// backward, wherever gradients are, whatever is clipped, left out, deferred or not begun at all.
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/begun_step.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::GradientMemory;
using zero::UpdateWay;

class BegunStepsTest : public ComputeTest, public ::testing::WithParamInterface<Setting> {
   protected:
    std::string path(const std::string& name = "swap") const { return parent_ / name; }

   private:
    const TemporaryDirectory parent_;
};

bool may_clip(const Setting& setting) {
    zero::CoreOptions options;
    options.residency = setting.residency;
    options.durability = setting.durability;
    options.fill_host_budget = setting.fill_bytes > 0;
    update_by(setting.order, options);
    return options.clips;
}

bool has_memory_of_one_unit(const Setting& setting) {
    return setting.gradient_memory == GradientMemory::one_unit;
}

BegunStep drawn(std::mt19937_64& random, const Setting& setting, std::uint64_t step) {
    const auto one_in = [&](std::uint64_t count) { return random() % count == 0; };
    BegunStep that{.step = step, .in_its_pass = one_in(2), .forward = !one_in(4)};
    if (one_in(4)) that.without_gradient = {2};
    const bool of_one =
        has_memory_of_one_unit(setting);  // the last unit has its own, the first one's stay until the end
    for (std::uint32_t unit = 0; unit < 5; ++unit)
        if (one_in(4) && (!of_one || unit % 4 == 0)) that.complete.erase(unit);
    if (of_one) return that;
    if (one_in(2)) that.clip = one_in(2) ? strikes : misses;
    that.begins = !one_in(4) && (that.clip == 0 || may_clip(setting));
    return that;
}

// What an update says of a step.
void expect_report(const zero::UpdateReport& report, const BegunStep& that, const Setting& setting,
                   const zero::ModelLayout& layout) {
    const std::vector<bool> deferred =
        zero::deferred_units(layout, setting.order == UpdateWay::balanced ? *setting.deferred_share : 0);
    const bool any_deferred = std::find(deferred.begin(), deferred.end(), true) != deferred.end();
    std::set<std::uint32_t> within = that.complete;
    std::erase_if(within, [&](std::uint32_t unit) {
        return deferred[unit] || layout.unit(unit).spec().resident || that.without_gradient.contains(unit);
    });
    EXPECT_EQ(report.updated_again, that.begins && that.clip == strikes && !within.empty());
    const bool defers = may_clip(setting) || (setting.order == UpdateWay::balanced && *setting.deferred_share > 0);
    const bool at_once = that.begins ? !any_deferred && !report.updated_again : !defers;
    EXPECT_EQ(report.committed, at_once && setting.durability.commits_after(that.step));
    if (setting.durability.commit_steps == 1) {
        EXPECT_TRUE(report.committed_before);
    }
}

TEST_P(BegunStepsTest, AreThoseOfThePlainLoop) {
    std::mt19937_64 random(7);
    Setting setting = GetParam();
    setting.unused = zero::Unused::skipped;
    PlainLoop plain(units(setting.unused));
    for (std::uint64_t life = 0; life < 2; ++life) {
        Client client(path(), setting);
        EXPECT_EQ(client.steps(), 8 * life);
        bool waits = false;  // a step, for the next pass
        for (std::uint64_t step = 8 * life + 1; step <= 8 * life + 8; ++step) {
            SCOPED_TRACE(step);
            const BegunStep that = drawn(random, setting, step);
            if (random() % 4 == 0 && !has_memory_of_one_unit(setting)) {
                backward_pass(client, plain, step + 100);  // of the same step
                waits = false;
            }
            const zero::UpdateReport report = run(client, plain, that);
            // Where its pass does not come to all units in time, it waits itself.
            if (that.forward || !waits || that.complete.size() == 5)
                expect_report(report, that, setting, client.session().layout());
            waits = !report.committed;
            if (random() % 4 == 0) {
                EXPECT_TRUE(sees(client, plain));
                waits = false;
            }
        }
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

using BegunNormTest = BegunStepsTest;

// Each member of a pass may come before an update: gradients of units that wait for theirs come once they had it.
TEST_P(BegunNormTest, IsThatOfAnUpdateAfterwards) {
    PlainLoop plain(units()), other(units());
    Client reference(path("reference"), {.device = GetParam().device});
    Client client(path(), GetParam());
    std::set<std::uint32_t> complete = {1, 2, 3, 4};
    for (std::uint64_t step = 1; step <= 3; ++step) {
        EXPECT_EQ(run(client, plain, {.step = step, .complete = complete}).gradient_norm,
                  run(reference, other, {.step = step, .begins = false}).gradient_norm)
            << step;
        complete.insert(0);
    }
}

// Of one device, and of each other one that has memory of its own.
std::vector<Setting> settings() {
    using zero::Tier;
    std::vector<Setting> all = device_settings();
    std::erase_if(all, [](const Setting& each) { return each.order != UpdateWay::deferred; });
    all.insert(all.end(), {Setting{}, Setting{.depth = 0}, Setting{.residency = {Tier::host, Tier::nvme}},
                           Setting{.residency = {Tier::nvme, Tier::host}},
                           Setting{.residency = {Tier::host, Tier::host}}, Setting{.resident_units = {0, 2}},
                           Setting{.fill_bytes = some_weights}, Setting{.fill_bytes = some_states}});
    return all;
}

std::vector<Setting> within() {
    std::vector<Setting> all;
    for (Setting each : settings())
        for (const auto memory : {GradientMemory::all_units, GradientMemory::nvme, GradientMemory::one_unit}) {
            each.order = UpdateWay::within;
            each.gradient_memory = memory;
            all.push_back(each);
        }
    return all;
}

std::vector<Setting> speculative() {
    std::vector<Setting> all = settings();
    std::erase_if(all, [](const Setting& each) {
        return each.fill_bytes > 0 || each.residency.weights != zero::Tier::nvme ||
               each.residency.states != zero::Tier::nvme;
    });
    all.push_back({.gradient_memory = GradientMemory::nvme});
    for (Setting& each : all) each.order = UpdateWay::speculative;
    return all;
}

std::vector<Setting> balanced() {
    std::vector<Setting> bases = settings(), all;
    bases.insert(bases.end(), {Setting{.durability = {3}}, Setting{.gradient_memory = GradientMemory::nvme},
                               Setting{.residency = {zero::Tier::host, zero::Tier::host}, .durability = {2}},
                               Setting{.durability = {3}, .fill_bytes = some_states}});
    for (Setting each : bases)
        for (const double share : {0.0, 0.5, 1.0}) {
            each.order = UpdateWay::balanced;
            each.deferred_share = share;
            all.push_back(each);
        }
    return all;
}

std::string name_of(const ::testing::TestParamInfo<Setting>& instance) {
    return "setting_" + std::to_string(instance.index);
}

std::vector<Setting> of_each_order() {
    std::vector<Setting> all = within();
    all.push_back({.order = UpdateWay::speculative});
    all.push_back({.order = UpdateWay::balanced, .deferred_share = 0.5});
    return all;
}

INSTANTIATE_TEST_SUITE_P(Within, BegunStepsTest, ::testing::ValuesIn(within()), name_of);
INSTANTIATE_TEST_SUITE_P(Speculative, BegunStepsTest, ::testing::ValuesIn(speculative()), name_of);
INSTANTIATE_TEST_SUITE_P(Balanced, BegunStepsTest, ::testing::ValuesIn(balanced()), name_of);

INSTANTIATE_TEST_SUITE_P(Orders, BegunNormTest, ::testing::ValuesIn(of_each_order()), name_of);

}  // namespace
}  // namespace penstock::testing
