// Steps of which some units are updated within backward, and the others by the next pass.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/begun_step.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

namespace penstock::testing {
namespace {

class BalancedTest : public ComputeTest, public ::testing::WithParamInterface<Setting> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

Setting balanced(double share = 0.5) {
    Setting setting{.device = zero::DeviceKind::cpu, .order = zero::UpdateWay::balanced};
    setting.deferred_share = share;
    return setting;
}

bool may_clip(const Setting& setting) {
    zero::CoreOptions options;
    options.residency = setting.residency;
    options.durability = setting.durability;
    options.fill_host_budget = setting.fill_bytes > 0;
    zero::update_by(setting.order, options);
    return options.clips;
}

TEST_P(BalancedTest, StepsAreThoseOfThePlainLoop) {
    std::mt19937_64 random(7);
    const auto one_in = [&](std::uint64_t count) { return random() % count == 0; };
    PlainLoop plain(units());
    for (std::uint64_t life = 0; life < 2; ++life) {
        Client client(path(), GetParam());
        const std::vector<bool> deferred = zero::deferred_units(client.session().layout(), *GetParam().deferred_share);
        const bool any_deferred = std::find(deferred.begin(), deferred.end(), true) != deferred.end();
        const bool defers = may_clip(GetParam()) || *GetParam().deferred_share > 0;  // what is not begun
        bool pending = false;
        for (std::uint64_t step = 8 * life + 1; step <= 8 * life + 8; ++step) {
            SCOPED_TRACE(step);
            BegunStep that{.step = step, .in_its_pass = one_in(2), .forward = !one_in(4)};
            if (one_in(2)) that.clip = one_in(2) ? strikes : misses;
            that.begins = !one_in(4) && (that.clip == 0 || may_clip(GetParam()));
            for (std::uint32_t unit = 0; unit < 5; ++unit)
                if (one_in(4)) that.complete.erase(unit);
            if (one_in(4)) {
                backward_pass(client, plain, step + 100);
                pending = false;
            }
            const zero::UpdateReport report = run(client, plain, that);
            if (that.forward || !pending) {
                const bool whole = that.begins ? !any_deferred && !report.updated_again : !defers;
                EXPECT_EQ(report.committed, whole && GetParam().durability.commits_after(step));
                std::set<std::uint32_t> within = that.complete;
                std::erase_if(within, [&](std::uint32_t unit) {
                    return deferred[unit] || client.session().layout().unit(unit).spec().resident;
                });
                EXPECT_EQ(report.updated_again, that.begins && that.clip == strikes && !within.empty());
            }
            pending = that.begins ? any_deferred || report.updated_again : defers;
            if (one_in(4)) {
                EXPECT_TRUE(sees(client, plain));
                pending = false;
            }
        }
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

INSTANTIATE_TEST_SUITE_P(Settings, BalancedTest, ::testing::ValuesIn([] {
                             using zero::Tier;
                             std::vector<Setting> all = device_settings();
                             std::erase_if(all,
                                           [](const Setting& each) { return each.order != zero::UpdateWay::deferred; });
                             all.insert(all.end(),
                                        {Setting{}, Setting{.depth = 0}, Setting{.durability = {3}},
                                         Setting{.residency = {Tier::host, Tier::nvme}},
                                         Setting{.residency = {Tier::nvme, Tier::host}},
                                         Setting{.residency = {Tier::host, Tier::host}, .durability = {2}},
                                         Setting{.resident_units = {0, 2}}, Setting{.fill_bytes = some_weights},
                                         Setting{.durability = {3}, .fill_bytes = some_states}});
                             std::vector<Setting> with_shares;
                             for (Setting& each : all)
                                 for (const double share : {0.0, 0.5, 1.0}) {
                                     each.order = zero::UpdateWay::balanced;
                                     each.deferred_share = share;
                                     with_shares.push_back(each);
                                 }
                             return with_shares;
                         }()),
                         [](const auto& instance) { return "setting_" + std::to_string(instance.index); });

// Its slots are those that an update of the next step writes to.
TEST_F(BalancedTest, AStepIsCommittedOnceThePassAfterHasUpdatedTheRestAndBeforeTheNextIsUpdated) {
    PlainLoop plain(units());
    {
        Client client(path(), balanced());
        EXPECT_FALSE(run(client, plain, {.step = 1}).committed);
        const zero::UpdateReport second = run(client, plain, {.step = 2});
        EXPECT_FALSE(second.committed);
        EXPECT_TRUE(second.committed_before);
        zero::CoreSession& session = client.session();
        session.begin_step({.values = {.step = 3, .learning_rate = 1e-2}});
        session.begin_pass(Pass::training);
        EXPECT_FALSE(session.committed());
        for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
        client.backward(4, 3);
        session.complete(4);
        EXPECT_TRUE(session.committed());
    }
    {
        Client client(path(), balanced());
        EXPECT_EQ(client.steps(), 2U);
        EXPECT_TRUE(client.state() == plain.parameters());
        PlainLoop lost(units());
        lost.parameters() = plain.parameters();
        run(client, lost, {.step = 3});
    }
    Client client(path(), balanced());
    EXPECT_EQ(client.steps(), 2U) << "step 3 was not finished by another pass";
    EXPECT_TRUE(client.state() == plain.parameters());
}

// From one settled step to another; the first forward reads weights that the updates of later ones make.
TEST_F(BalancedTest, BytesAreThosePlanned) {
    for (const double share : {0.0, 0.5, 1.0}) {
        const TemporaryDirectory parent;
        PlainLoop plain(units());
        Client client(parent / "swap", balanced(share));
        zero::CoreSession& session = client.session();
        run(client, plain, {.step = 1});
        session.settle();
        const auto before = session.counters();
        for (const std::uint64_t step : {2, 3, 4}) run(client, plain, {.step = step});
        session.settle();
        const auto after = session.counters();
        std::uint64_t made = 0;
        const std::vector<bool> deferred = zero::deferred_units(session.layout(), share);
        for (std::uint32_t unit = 0; unit < 5; ++unit)
            if (deferred[unit]) made += session.layout().memory_bytes(session.layout().objects(unit).weights);
        EXPECT_EQ(after.read_bytes - before.read_bytes, 3 * session.info().step_bytes.read + made) << share;
    }
}

TEST_F(BalancedTest, AParameterThatIsSkippedStaysAsItIs) {
    for (const double share : {0.0, 0.5, 1.0}) {
        const TemporaryDirectory parent;
        PlainLoop plain(units(zero::Unused::skipped));
        Setting setting = balanced(share);
        setting.unused = zero::Unused::skipped;
        for (std::uint64_t life = 0; life < 2; ++life) {
            Client client(parent / "swap", setting);
            for (std::uint64_t step = 4 * life + 1; step <= 4 * life + 4; ++step) {
                BegunStep that{.step = step, .clip = std::array{0.0, strikes, misses}.at(step % 3)};
                if (step % 2 == 0) that.without_gradient = {2};
                run(client, plain, that);
            }
            EXPECT_TRUE(client.state() == plain.parameters());
        }
    }
}

// Unit 2 is deferred: its gradient is asked for when the others are updated.
TEST_F(BalancedTest, AMissingGradientOfADeferredUnitEndsTheSession) {
    PlainLoop plain(units());
    {
        Client client(path(), balanced());
        ASSERT_TRUE(zero::deferred_units(client.session().layout(), 0.5)[2]);
        run(client, plain, {.step = 1});
        client.session().settle();
        PlainLoop lost(units());
        lost.parameters() = plain.parameters();
        const std::string said =
            refusal_of(ExitCode::usage, [&] { run(client, lost, {.step = 2, .without_gradient = {2}}); });
        EXPECT_NE(said.find("no gradient came to unit 'third', parameters 'expert'"), std::string::npos) << said;
        EXPECT_EQ(client.session().stage(), zero::CoreSession::Stage::failed);
    }
    Client client(path(), balanced());
    EXPECT_EQ(client.steps(), 1U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// Each member of a pass may come before an update: gradients of units that wait for theirs come once they had it.
TEST_F(BalancedTest, TheNormIsThatOfAllUnits) {
    PlainLoop plain(units()), other(units());
    Setting usual;
    usual.device = zero::DeviceKind::cpu;
    Client reference(parent_ / "reference", usual);
    Client client(path(), balanced());
    for (std::uint64_t step = 1; step <= 4; ++step)
        EXPECT_EQ(run(client, plain, {.step = step}).gradient_norm,
                  run(reference, other, {.step = step, .begins = false}).gradient_norm)
            << step;
}

TEST_F(BalancedTest, AShareIsOfOne) {
    for (const double share : {-0.1, 1.1})
        EXPECT_NE(refusal_of(ExitCode::usage, [&] { Client(path(), balanced(share)); }).find("deferred_share"),
                  std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
