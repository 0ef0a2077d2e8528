// Sessions that make forwards alone: weights in one slot, or those of a store that is only read; and, of a training,
// the units that no gradient came to.
#include "tests/zero_infinity/session/session_client.h"

#include "aio/words/error.h"
#include "swap/directory/store_directory.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ample_room.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <stdexcept>

namespace penstock::testing {
namespace {

namespace fs = std::filesystem;

std::vector<zero::UnitSpec> frozen_units() {
    std::vector<zero::UnitSpec> all = units();
    for (zero::UnitSpec& unit : all)
        for (zero::ParameterSpec& parameter : unit.parameters) parameter.training = zero::Training::frozen;
    return all;
}

zero::CoreOptions forwards_in(const std::vector<std::string>& directories) {
    zero::CoreOptions options;
    options.swap_directories = directories;
    options.job = "reader";
    options.purpose = zero::Purpose::forwards;
    options.host_budget_bytes = zero::planned_host_budget;
    options.tile_numel = 4096;
    options.codec = "plain_fp32";
    options.gradient_type = zero::PlaneType::fp32;
    options.device = {.kind = devices().front(), .budget_bytes = 4 << 20, .copy_delay = std::chrono::microseconds(50)};
    return options;
}

class Forwards : public ComputeTest {
   protected:
    std::string path(const char* name = "swap") const { return parent_ / name; }

    std::unique_ptr<zero::CoreSession> open(const std::vector<zero::UnitSpec>& all, const zero::CoreOptions& options) {
        zero::WeightFunction source([&](const auto& parameter, std::uint64_t first, std::span<float> out) {
            ++asked_;
            std::uint32_t unit = 0, index = 0;
            while (all[unit].name != parameter.unit.name) ++unit;
            while (all[unit].parameters[index].name != parameter.spec.name) ++index;
            for (std::uint64_t i = 0; i < out.size(); ++i) out[i] = first_value(unit, index, first + i);
        });
        zero::SessionSeams seams;
        seams.weights = &source;
        return std::make_unique<zero::CoreSession>(zero::ModelSpec{.units = all, .optimizers = zero::make_adamw({})},
                                                   options, ample_room(), store::ClientState{{"step", "0"}},
                                                   zero::SessionEvents{}, seams);
    }

    // A pass of each kind finds the plain loop's weights, also while another one does.
    static void expect_weights(zero::CoreSession& session, const PlainLoop& plain) {
        expect_weights(session, plain.parameters());
    }
    static void expect_weights(zero::CoreSession& session,
                               const std::map<PlainLoop::Id, PlainLoop::Parameter>& parameters) {
        for (const Pass pass : {Pass::inference, Pass::training}) {
            session.begin_pass(pass);
            for (const auto& [id, parameter] : parameters) {
                session.visit({{id.first}});
                EXPECT_TRUE(holds(session.weights({id.first, id.second}), parameter.value))
                    << id.first << " " << id.second;
            }
            session.end_pass();
        }
    }

    const TemporaryDirectory parent_;
    std::size_t asked_ = 0;
};

std::uint64_t bytes_in(const std::string& directory) {
    std::uint64_t bytes = 0;
    for (const auto& each : fs::directory_iterator(directory)) bytes += each.file_size();
    return bytes;
}

TEST_F(Forwards, WeightsOfANewStoreTakeOneSlotAndAreFoundAgain) {
    const std::vector<zero::UnitSpec> all = frozen_units();
    const PlainLoop plain(all);
    {
        const auto session = open(all, forwards_in({path()}));
        EXPECT_FALSE(session->info().resumed);
        expect_weights(*session, plain);
        EXPECT_EQ(session->info().memory_table.find("gradients"), std::string::npos);
        EXPECT_EQ(session->info().memory_table.find("staging"), std::string::npos);
        EXPECT_EQ(session->info().step_bytes.write, 0U);
    }
    const zero::SessionPlan plan({.units = all, .optimizers = zero::make_adamw({})}, forwards_in({path()}),
                                 ample_room(), {});
    EXPECT_LE(bytes_in(path()), plan.store_bytes() + 4096);
    EXPECT_LT(fs::file_size(path() + "/data"), 4 * zero::count_parameters(all).all * 3 / 2);  // whole granules
    const std::size_t asked = std::exchange(asked_, 0);
    EXPECT_GT(asked, 0U);
    const auto again = open(all, forwards_in({path()}));
    EXPECT_TRUE(again->info().resumed);
    EXPECT_EQ(asked_, 0U);
    expect_weights(*again, plain);
}

TEST_F(Forwards, SeveralReadOneStoreAtATimeAlsoBesideWhoMadeIt) {
    const std::vector<zero::UnitSpec> all = frozen_units();
    const PlainLoop plain(all);
    const std::vector<std::string> directories = {path("one"), path("two")};
    const auto first = open(all, forwards_in(directories)), second = open(all, forwards_in(directories));
    first->begin_pass(Pass::inference);
    first->visit({{0}});
    expect_weights(*second, plain);
    first->end_pass();
    expect_weights(*first, plain);
}

TEST_F(Forwards, AnOpeningThatIsCutShortIsMadeAgain) {
    const std::vector<zero::UnitSpec> all = frozen_units();
    zero::WeightFunction failing([](const auto&, std::uint64_t, std::span<float>) { throw std::runtime_error("cut"); });
    zero::SessionSeams seams;
    seams.weights = &failing;
    EXPECT_THROW(zero::CoreSession({.units = all, .optimizers = zero::make_adamw({})}, forwards_in({path()}),
                                   ample_room(), {}, {}, seams),
                 std::runtime_error);
    expect_weights(*open(all, forwards_in({path()})), PlainLoop(all));
}

class ForwardsOverATraining : public Forwards {
   protected:
    void train(Client& client, PlainLoop& plain, std::uint64_t first, std::uint64_t last) {
        for (std::uint64_t step = first; step <= last; ++step) {
            backward_pass(client, plain, step);
            client.update(step);
            plain.update(step, 1);
        }
    }
};

TEST_F(ForwardsOverATraining, ItsNewestCommitIsReadAndNothingIsChanged) {
    PlainLoop plain(units());
    {
        Client client(path(), {.snapshots = true});
        train(client, plain, 1, 2);
        EXPECT_THROW(open(units(), forwards_in({path()})), Error);  // under way
    }
    const auto time_of = [&](const char* name) { return fs::last_write_time(path() + "/" + name); };
    const auto before = {time_of("data"), time_of("manifest.0"), time_of("manifest.1"), time_of("lock")};
    {
        const auto first = open(units(), forwards_in({path()})), second = open(units(), forwards_in({path()}));
        EXPECT_TRUE(first->info().resumed);
        EXPECT_EQ(first->info().client.at("step"), "2");
        expect_weights(*first, plain);
        expect_weights(*second, plain);
        EXPECT_EQ(first->info().memory_table.find("gradients"), std::string::npos);
        EXPECT_EQ(first->counters().write_bytes, 0U);
        EXPECT_THROW(Client(path(), {}), Error);  // nobody trains beside readers
    }
    const auto after = {time_of("data"), time_of("manifest.0"), time_of("manifest.1"), time_of("lock")};
    EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin()));
    Client client(path(), {});
    train(client, plain, 3, 3);
    EXPECT_TRUE(client.state() == plain.parameters());
}

TEST_F(ForwardsOverATraining, ASnapshotIsReadWhereItLiesWhileTheTrainingGoesOn) {
    PlainLoop plain(units());
    Client client(path(), {.snapshots = true});
    train(client, plain, 1, 1);
    client.session().begin_snapshot(path("snapshot"));
    client.session().finish_snapshot([](const zero::SnapshotProgress&) { return true; });
    ASSERT_FALSE(client.session().take_snapshots().front().problem);
    const auto then = plain.parameters();
    train(client, plain, 2, 3);
    const auto session = open(units(), forwards_in({path("snapshot")}));
    expect_weights(*session, then);
    train(client, plain, 4, 4);
    EXPECT_TRUE(client.state() == plain.parameters());
}

TEST_F(ForwardsOverATraining, WhatIsKeptInHostMemoryIsItsWeightsAlone) {
    PlainLoop plain(units());
    {
        Client client(path(), {.residency = {zero::Tier::host, zero::Tier::host}});
        train(client, plain, 1, 1);
    }
    zero::CoreOptions options = forwards_in({path()});
    options.residency = {zero::Tier::host, zero::Tier::host};
    const auto session = open(units(), options);
    expect_weights(*session, plain);
    EXPECT_EQ(session->info().memory_table.find("resident states"), std::string::npos);
}

TEST_F(ForwardsOverATraining, AnotherModelIsRefusedWithWhatHelps) {
    {
        PlainLoop plain(units());
        Client client(path(), {});
        train(client, plain, 1, 1);
    }
    EXPECT_NE(refusal_of(ExitCode::usage, [&] { open(frozen_units(), forwards_in({path()})); })
                  .find("open it with the units, types and codec that it was made with"),
              std::string::npos);
}

TEST_F(Forwards, WhatCannotBeInAStoreThatIsOnlyReadIsRefused) {
    zero::CoreOptions options = forwards_in({path()});
    options.activation_bytes = 1 << 20;
    EXPECT_NE(refusal_of(ExitCode::usage, [&] { open(frozen_units(), options); }).find("only read"), std::string::npos);
    options = forwards_in({path()});
    options.resume_from = path("snapshot");
    EXPECT_NE(refusal_of(ExitCode::usage, [&] { open(frozen_units(), options); }).find("in the place of the store"),
              std::string::npos);
    EXPECT_FALSE(fs::exists(path()));
}

// ---------------------------------------------------------------- of a training, what stays as it is

class UnitsWithoutGradient : public ComputeTest, public ::testing::WithParamInterface<zero::UpdateWay> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

// The gradients of some units alone, with a forward of all.
void pass_of(Client& client, PlainLoop& plain, const std::vector<std::uint32_t>& trained, std::uint64_t time) {
    client.session().begin_pass(Pass::training);
    for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
    for (const std::uint32_t unit : trained) {
        client.backward(unit, time);
        plain.backward(unit, time);
    }
    client.session().end_pass();
    plain.end_pass();
}

std::vector<zero::UnitSpec> skipping(std::vector<zero::UnitSpec> all) {
    for (zero::UnitSpec& unit : all)
        for (zero::ParameterSpec& parameter : unit.parameters) parameter.unused = zero::Unused::skipped;
    return all;
}

TEST_P(UnitsWithoutGradient, StayAsTheyAreAndAreNotMoved) {
    PlainLoop plain(skipping(units()));
    Setting setting{.order = GetParam()};
    setting.all_may_be_unused = true;
    Client client(path(), setting);
    const std::vector<std::vector<std::uint32_t>> trained = {{3, 2, 1, 0}, {2}, {3}, {2}, {3, 2, 1, 0}, {2}};
    std::vector<std::uint64_t> written;
    for (std::uint64_t step = 1; step <= trained.size(); ++step) {
        const std::uint64_t before = client.session().counters().write_bytes;
        pass_of(client, plain, trained[step - 1], step);
        client.update(step);
        client.session().settle();
        plain.update(step, 1);
        written.push_back(client.session().counters().write_bytes - before);
    }
    EXPECT_TRUE(client.state() == plain.parameters());
    if (GetParam() != zero::UpdateWay::after_backward && GetParam() != zero::UpdateWay::deferred) return;
    const std::uint64_t expert = 5000;
    EXPECT_LT(written[1], 16 * expert + (128U << 10));  // its weights and moments, and manifests
    EXPECT_LT(written[1], written[0] / 2);
}

INSTANTIATE_TEST_SUITE_P(Orders, UnitsWithoutGradient,
                         ::testing::Values(zero::UpdateWay::after_backward, zero::UpdateWay::deferred,
                                           zero::UpdateWay::within, zero::UpdateWay::speculative,
                                           zero::UpdateWay::balanced));

TEST_F(Forwards, AStepWithoutAnyGradientStillCounts) {
    PlainLoop plain(skipping(units()));
    Setting setting;
    setting.all_may_be_unused = true;
    {
        Client client(path(), setting);
        pass_of(client, plain, {}, 1);
        client.update(1);
        plain.update(1, 1);
        pass_of(client, plain, {1}, 2);
        client.update(2);
        plain.update(2, 1);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
    EXPECT_EQ(Client(path(), setting).steps(), 2U);
}

// What host memory holds back of units that are left out goes to the store with the commit.
TEST_F(Forwards, WhatIsHeldBackOfAUnitWithoutGradientIsCommitted) {
    PlainLoop plain(skipping(units()));
    Setting setting{.residency = {zero::Tier::host, zero::Tier::host}, .durability = {.commit_steps = 2}};
    setting.all_may_be_unused = true;
    {
        Client client(path(), setting);
        pass_of(client, plain, {3, 2, 1, 0}, 1);
        client.update(1);
        plain.update(1, 1);
        pass_of(client, plain, {2}, 2);
        client.update(2);
        plain.update(2, 1);
    }
    Client client(path(), setting);
    EXPECT_EQ(client.steps(), 2U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

}  // namespace
}  // namespace penstock::testing
