// Units that are updated within backward as if nothing were clipped, and again where it is.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/begun_step.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace penstock::testing {
namespace {

class SpeculativeTest : public ComputeTest {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

zero::UpdateRequest request_of(std::uint64_t step, double clip) {
    return {.values = {.step = step, .learning_rate = 1e-2}, .clip = clip};
}

Setting speculative() {
    return {.device = zero::DeviceKind::cpu, .order = zero::UpdateWay::speculative};
}

TEST_F(SpeculativeTest, AStepWhosePassDoesNotComeToAllThatWasDeferredIsDeferredItself) {
    PlainLoop plain(units(zero::Unused::skipped));
    Setting setting = speculative();
    setting.unused = zero::Unused::skipped;
    Client client(path(), setting);
    for (std::uint64_t step = 1; step <= 6; ++step) {
        BegunStep that{.step = step, .clip = strikes, .begins = step % 3 != 1};
        if (step % 3 == 2) that.not_visited = {2};
        const zero::UpdateReport report = run(client, plain, that);
        EXPECT_EQ(report.updated_again, step % 3 == 0) << step;
    }
    EXPECT_TRUE(client.state() == plain.parameters());
}

// Of what is updated again, states and weights once more; here plain_fp32, 8 and 4 bytes. The next forward would have
// read the weights in any case.
TEST_F(SpeculativeTest, AStepThatIsUpdatedAgainReadsItsTilesAgainInTheNextForward) {
    PlainLoop plain(units());
    Client client(path(), speculative());
    const auto counters = [&] { return client.session().counters(); };
    run(client, plain, {.step = 1, .clip = misses});
    const auto before = counters();
    run(client, plain, {.step = 2, .clip = misses});
    const auto usual = counters();
    run(client, plain, {.step = 3, .clip = strikes});
    run(client, plain, {.step = 4, .clip = misses});
    const auto again = counters();
    const std::uint64_t step_bytes = client.session().info().step_bytes.read;
    EXPECT_EQ(usual.read_bytes - before.read_bytes, step_bytes);
    const double written = static_cast<double>(usual.write_bytes - before.write_bytes);
    EXPECT_NEAR(static_cast<double>(again.write_bytes - usual.write_bytes) / written, 3, 0.1);
    EXPECT_NEAR(static_cast<double>(again.read_bytes - usual.read_bytes - 2 * step_bytes) / written, 8.0 / 12, 0.1);
}

// It is not a step's part until it is committed: of one that is killed before the next forward nothing is left.
TEST_F(SpeculativeTest, AStepThatIsUpdatedAgainIsCommittedInTheNextPass) {
    for (const bool settles : {false, true}) {
        const TemporaryDirectory parent;
        PlainLoop plain(units());
        {
            Client client(parent / "swap", speculative());
            run(client, plain, {.step = 1, .clip = misses});
            const auto kept = plain.parameters();
            EXPECT_TRUE(run(client, plain, {.step = 2, .clip = strikes}).updated_again);
            EXPECT_FALSE(client.session().committed());
            if (settles) client.session().settle();
            if (!settles) plain.parameters() = kept;
        }
        Client client(parent / "swap", speculative());
        EXPECT_EQ(client.steps(), settles ? 2U : 1U);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// A step of SGD, whose unclipped values are beyond fp32.
struct Large {
    Large(const std::string& directory, zero::UpdateWay order)
        : client(directory, {.device = zero::DeviceKind::cpu, .sgd = true, .order = order}) {}
    zero::UpdateReport step(double clip, bool complete = true, float gradient = 1e34F) {
        const zero::UpdateRequest request{.values = {.step = ++number, .learning_rate = 1e6}, .clip = clip};
        const bool begun = client.session().may_begin_step(request);
        if (begun) client.session().begin_step(request);
        client.session().begin_pass(Pass::training);
        for (std::uint32_t unit = 5; unit-- > 0;) {
            client.backward(unit, 1);
            const Values large(unit == 1 ? 5000 : 0, gradient);
            if (unit == 1)
                client.session().add_gradient(
                    {1, 0}, {reinterpret_cast<const std::byte*>(large.data()), zero::PlaneType::fp32, large.size()});
            if (begun && complete) client.session().complete(unit);
        }
        client.session().end_pass();
        return client.session().update(request, [](double) { return store::ClientState{{"step", "1"}}; });
    }
    std::uint64_t number = 0;
    Client client;
};

TEST_F(SpeculativeTest, AValueThatOnlyTheSpeculationHasIsNoError) {
    Large usual(parent_ / "usual", zero::UpdateWay::after_backward);
    Large speculated(path(), zero::UpdateWay::speculative);
    EXPECT_FALSE(usual.step(1).updated_again);
    EXPECT_TRUE(speculated.step(1).updated_again);
    EXPECT_TRUE(speculated.client.state() == usual.client.state());
    usual.step(misses, true, 1);
    EXPECT_FALSE(speculated.step(misses, true, 1).updated_again);
    EXPECT_TRUE(speculated.client.state() == usual.client.state());
}

TEST_F(SpeculativeTest, AValueThatIsNotFiniteIsTheErrorOfTheUsualOrder) {
    for (const double clip : {misses * 1e30, 1e35}) {
        std::set<std::string> said;
        const auto refuse = [&](zero::UpdateWay order, bool complete) {
            const TemporaryDirectory parent;
            Large large(parent / "swap", order);
            said.insert(refusal_of(ExitCode::non_finite, [&] {
                large.step(clip, complete);
                large.client.session().settle();
            }));
            EXPECT_EQ(large.client.session().stage(), zero::CoreSession::Stage::failed);
        };
        refuse(zero::UpdateWay::after_backward, true);
        for (const bool complete : {true, false}) refuse(zero::UpdateWay::speculative, complete);
        EXPECT_EQ(said.size(), 1U) << *said.begin() << *said.rbegin();
        EXPECT_NE(said.begin()->find("unit 'second', parameter 'a'"), std::string::npos) << *said.begin();
    }
}

TEST_F(SpeculativeTest, OnlyWhatIsCommittedAndOnNvmeIsClippedAfterwards) {
    const auto may = [&](const Setting& setting, const zero::UpdateRequest& request) {
        const TemporaryDirectory parent;
        return Client(parent / "swap", setting).session().may_begin_step(request);
    };
    EXPECT_TRUE(may(speculative(), request_of(1, 1)));
    const auto refused = [&](const Setting& setting) {
        return refusal_of(ExitCode::usage, [&] { may(setting, request_of(1, 1)); });
    };
    Setting setting = speculative();
    setting.durability = zero::Durability{2};
    EXPECT_NE(refused(setting).find("it needs commit_steps 1"), std::string::npos);
    setting = speculative();
    setting.residency.weights = zero::Tier::host;
    EXPECT_NE(refused(setting).find("it needs residency.weights \"nvme\""), std::string::npos);
    setting = speculative();
    setting.residency.states = zero::Tier::host;
    EXPECT_NE(refused(setting).find("it needs residency.states \"nvme\""), std::string::npos);
    setting.order = zero::UpdateWay::balanced;  // which clips only where that may be undone
    EXPECT_FALSE(may(setting, request_of(1, 1)));
    EXPECT_TRUE(may(setting, request_of(1, 0)));
    setting = speculative();
    setting.order = zero::UpdateWay::within;
    EXPECT_FALSE(may(setting, request_of(1, 1)));
    EXPECT_TRUE(may(setting, request_of(1, 0)));
    zero::UpdateRequest request = request_of(1, 1);
    request.overflow = zero::UpdateRequest::Overflow::skipped;
    EXPECT_FALSE(may(speculative(), request));
    request.clip = 0;
    EXPECT_FALSE(may(speculative(), request));
}

// Its slots are those that an update of the next step writes to: it is committed before, and a kill costs that next
// step alone.
TEST_F(SpeculativeTest, ADeferredStepIsCommittedBeforeTheNextIsUpdated) {
    PlainLoop plain(units());
    {
        Client client(path(), speculative());
        for (const std::uint64_t step : {1, 2}) run(client, plain, {.step = step, .clip = strikes, .begins = false});
        const zero::UpdateRequest next = request_of(3, misses);
        EXPECT_TRUE(client.session().may_begin_step(next)) << "step 2 will be committed";
        client.session().begin_step(next);
        client.session().begin_pass(Pass::training);
        for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
        client.backward(4, 3);
        client.session().complete(4);
        EXPECT_TRUE(client.session().committed());
    }
    Client client(path(), speculative());
    EXPECT_EQ(client.steps(), 2U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// They are on NVMe, and would be taken back with the rest.
TEST_F(SpeculativeTest, ValuesThatWereWrittenAreCommittedBeforeAnythingIsSpeculated) {
    PlainLoop plain(units());
    Client client(path(), speculative());
    zero::WeightFunction values(
        [](const auto&, std::uint64_t, std::span<float> out) { std::ranges::fill(out, 0.25F); });
    client.session().write_in(
        {.wanted = [](const zero::NamedParameter& each) { return each.name() == "third.expert"; }}, values);
    Values& written = plain.parameters()[{2, 0}].value;
    std::ranges::fill(written, 0.25F);
    EXPECT_FALSE(client.session().may_begin_step(request_of(1, strikes)));
    client.session().settle();
    EXPECT_TRUE(client.session().may_begin_step(request_of(1, strikes)));
    EXPECT_TRUE(run(client, plain, {.step = 1, .clip = strikes}).updated_again);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// The snapshot is of the step before, whose slots a failed speculation reads and nobody writes to.
TEST_F(SpeculativeTest, ASnapshotIsOfTheStepBefore) {
    PlainLoop plain(units());
    Setting setting = speculative();
    setting.snapshots = true;
    {
        Client client(path(), setting);
        run(client, plain, {.step = 1, .clip = strikes});
        const auto kept = plain.parameters();
        client.session().begin_snapshot(parent_ / "kept");
        run(client, plain, {.step = 2, .clip = strikes});
        run(client, plain, {.step = 3, .clip = strikes});
        client.session().finish_snapshot([](const zero::SnapshotProgress&) { return true; });
        EXPECT_TRUE(client.state() == plain.parameters());
        plain.parameters() = kept;
    }
    setting.resume_from = parent_ / "kept";
    Client client(path(), setting);
    EXPECT_EQ(client.steps(), 1U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

}  // namespace
}  // namespace penstock::testing
