// Steps of which some units are updated within backward, and the others by the next pass.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/begun_step.h"
#include "zero_infinity/order/update_sequence.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::testing {
namespace {

class BalancedTest : public ComputeTest {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

Setting balanced(double share = 0.5) {
    Setting setting{.device = zero::DeviceKind::cpu, .order = zero::UpdateWay::balanced};
    setting.deferred_share = share;
    return setting;
}

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

TEST_F(BalancedTest, AShareIsOfOne) {
    for (const double share : {-0.1, 1.1})
        EXPECT_NE(refusal_of(ExitCode::usage, [&] { Client(path(), balanced(share)); }).find("deferred_share"),
                  std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
