// The open step, driven by a client without torch: whatever passes it makes, the model is the plain loop's, bit for
// bit.
#include "tests/zero_infinity/session/session_client.h"

#include "aio/words/error.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ample_room.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <thread>
#include <utility>

namespace penstock::testing {
namespace {

class CoreSessionTest : public ComputeTest, public ::testing::WithParamInterface<Setting> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

// Forward in order, backward in reverse, as an engine does.
void plain_pass(Client& client, PlainLoop& plain, std::uint64_t time) {
    client.session().begin_pass(Pass::training);
    for (std::uint32_t unit = 0; unit < 4; ++unit) client.forward(unit);
    for (std::uint32_t unit = 5; unit-- > 0;) {
        client.backward(unit, time);
        plain.backward(unit, time);
    }
    client.session().end_pass();
    plain.end_pass();
}

TEST_P(CoreSessionTest, StepsInOrderAreThoseOfThePlainLoop) {
    PlainLoop plain(units());
    for (std::uint64_t life = 0; life < 2; ++life) {
        Client client(path(), GetParam());
        ASSERT_EQ(client.steps(), 3 * life);
        for (std::uint64_t step = 3 * life + 1; step <= 3 * life + 3; ++step) {
            plain_pass(client, plain, step);
            client.update(step);
            plain.update(step, 1);
        }
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// Any visits in any order, several passes before an update, evaluation between them, passes that end early.
TEST_P(CoreSessionTest, PassesOfAnyOrderAreThoseOfThePlainLoop) {
    std::mt19937_64 random(11);
    PlainLoop plain(units());
    Client client(path(), GetParam());
    std::uint64_t time = 0;
    for (std::uint64_t step = 1; step <= 12; ++step) {
        for (std::uint64_t pass = 1 + random() % 3; pass > 0; --pass) {
            if (random() % 3 == 0) {
                client.session().begin_pass(Pass::inference);
                for (std::uint64_t visits = random() % 6; visits > 0; --visits)
                    client.forward(static_cast<std::uint32_t>(random() % 5));
                if (random() % 2 == 0) client.session().end_pass();  // else the next one ends it
            }
            plain_pass(client, plain, ++time);
            client.session().begin_pass(Pass::training);
            for (std::uint64_t visits = random() % 12; visits > 0; --visits) {
                const auto unit = static_cast<std::uint32_t>(random() % 5);
                if (random() % 2 == 0) {
                    client.forward(unit);
                } else {
                    client.backward(unit, ++time);
                    plain.backward(unit, time);
                }
            }
            client.session().end_pass();
            plain.end_pass();
        }
        const double norm = client.session().gradient_norm();
        EXPECT_EQ(client.session().gradient_norm(), norm);
        const double clip = step % 2 == 0 ? norm / 2 : 0;
        client.update(step, clip);
        plain.update(step, zero::clip_factor(norm, clip));
    }
    EXPECT_TRUE(client.state() == plain.parameters());
    EXPECT_LT(client.session().counters().visits.expected, client.session().counters().visits.visits);
}

TEST_P(CoreSessionTest, AMissingGradientIsNamedAndNothingHasChanged) {
    PlainLoop plain(units());
    Client client(path(), GetParam());
    client.session().begin_pass(Pass::training);
    for (const std::uint32_t unit : {4U, 3U, 1U, 0U}) client.backward(unit, 1);
    client.session().end_pass();
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { client.update(1); }),
              "no gradient came to unit 'third', parameters 'expert': the loss does not depend on them. Use them, "
              "freeze them, or say that a step may do without");
    EXPECT_TRUE(client.state() == plain.parameters());
    client.session().clear_gradients();
    plain_pass(client, plain, 2);
    client.update(1);
    plain.update(1, 1);
    EXPECT_TRUE(client.state() == plain.parameters());
}

TEST_P(CoreSessionTest, AGradientThatIsAllowedToMissIsZero) {
    Setting setting = GetParam();
    setting.unused = zero::Unused::allowed;
    PlainLoop plain(units());
    Client client(path(), setting);
    for (std::uint64_t step = 1; step <= 3; ++step) {
        client.session().begin_pass(Pass::training);
        for (const std::uint32_t unit : {4U, 3U, 2U, 1U, 0U}) {
            if (unit == 2 && step == 2) continue;
            client.backward(unit, step);
            plain.backward(unit, step);
        }
        client.session().end_pass();
        plain.end_pass();
        client.update(step);
        plain.update(step, 1);
    }
    EXPECT_TRUE(client.state() == plain.parameters());
}

TEST_P(CoreSessionTest, AGradientThatIsNotFiniteIsNamedAndNothingHasChanged) {
    PlainLoop plain(units());
    Client client(path(), GetParam());
    PlainLoop unused(units());
    plain_pass(client, unused, 1);
    const zero::GradientSums::Open sum = client.session().open_gradient({3, 0});
    issue([=] { reinterpret_cast<float*>(sum.data)[12344] = std::numeric_limits<float>::infinity(); });
    const std::string text = refusal_of(ExitCode::non_finite, [&] { client.update(1); });
    EXPECT_NE(text.find("first in unit 'fourth', parameter 'a'"), std::string::npos) << text;
    EXPECT_TRUE(client.state() == plain.parameters());
    client.session().clear_gradients();
    plain_pass(client, plain, 2);
    client.update(1);
    plain.update(1, 1);
    EXPECT_TRUE(client.state() == plain.parameters());
}

TEST_P(CoreSessionTest, SumsAreReadableInHostMemoryAndCanBeCleared) {
    PlainLoop plain(units());
    Client client(path(), GetParam());
    EXPECT_FALSE(client.session().gradient({0, 0}));
    plain_pass(client, plain, 1);
    const auto sum = client.session().gradient({3, 0});
    ASSERT_TRUE(sum);
    const Values expected = gradient_of(plain.parameters().at({3, 0}).value.data(), 12345, 1);
    EXPECT_EQ(std::memcmp(sum->data, expected.data(), 4 * expected.size()), 0);
    client.session().clear_gradient({3, 0});
    EXPECT_FALSE(client.session().gradient({3, 0}));
    const double without = client.session().gradient_norm();
    client.session().clear_gradients();
    EXPECT_EQ(client.session().gradient_norm(), 0);
    plain_pass(client, plain, 1);
    EXPECT_GT(client.session().gradient_norm(), without);
    EXPECT_EQ(client.session().gradient({3, 0})->data, sum->data) << "the same place for ever";
}

// As in torch.optim: no decay either, and bias correction by a count of its own, which a resume goes on with.
TEST_P(CoreSessionTest, AParameterThatIsSkippedStaysAsItIsAndCountsItsOwnSteps) {
    Setting setting = GetParam();
    setting.unused = zero::Unused::skipped;
    PlainLoop plain(units(setting.unused));
    std::uint64_t step = 0;
    for (const std::vector<bool>& used : {std::vector<bool>{false, true, false, false}, {true, true, false, true}}) {
        Client client(path(), setting);
        ASSERT_EQ(client.steps(), step);
        for (const bool with_it : used) {
            ++step;
            client.session().begin_pass(Pass::training);
            for (const std::uint32_t unit : {4U, 3U, 2U, 1U, 0U}) {
                if (unit == 2 && !with_it) continue;
                client.backward(unit, step);
                plain.backward(unit, step);
            }
            client.session().end_pass();
            plain.end_pass();
            client.update(step);
            plain.update(step, 1);
        }
        EXPECT_TRUE(client.state() == plain.parameters());
    }
    EXPECT_EQ(plain.parameters().at({2, 0}).skipped, 4U) << "the case was not met";
}

TEST_P(CoreSessionTest, GroupsHaveRatesOfTheirOwnInEachStep) {
    Setting setting = GetParam();
    setting.norm_group = true;
    PlainLoop plain(units());
    Client client(path(), setting);
    for (std::uint64_t step = 1; step <= 4; ++step) {
        plain_pass(client, plain, step);
        const std::pair<double, double> rates{1e-2 * static_cast<double>(step), 1e-3 / static_cast<double>(step)};
        const zero::GroupValues groups[] = {{rates.first, nullptr}, {rates.second, zero::make_adamw({})}};
        client.session().update({.values = {.step = step}, .groups = groups}, no_state);
        plain.update(step, 1, rates);
    }
    EXPECT_TRUE(client.state() == plain.parameters());
    plain_pass(client, plain, 9);
    const zero::GroupValues one[] = {{1, nullptr}};
    EXPECT_EQ(
        refusal_of(ExitCode::usage, [&] { client.session().update({.values = {.step = 5}, .groups = one}, no_state); }),
        "an update has values for 1 parameter groups, the model has 2");
    const zero::GroupValues other[] = {{1, nullptr}, {1, zero::make_adam({})}};
    const std::string text = refusal_of(
        ExitCode::usage, [&] { client.session().update({.values = {.step = 5}, .groups = other}, no_state); });
    EXPECT_NE(text.find("what is stored are the 2 of adamw"), std::string::npos) << text;
}

// A scale that is a power of two changes no bit, and an overflow costs its step alone.
TEST_P(CoreSessionTest, ALossScaleIsTakenOutAndAnOverflowIsSkipped) {
    PlainLoop plain(units());
    Client client(path(), GetParam());
    std::uint64_t step = 0;
    for (const bool overflows : {false, true, false, true, true, false}) {
        PlainLoop unused(units());
        plain_pass(client, overflows ? unused : plain, step);
        for (const ParameterId id : {ParameterId{0, 0}, {1, 0}, {1, 2}, {2, 0}, {3, 0}, {4, 0}}) {
            const zero::GradientSums::Open sum = client.session().open_gradient(id);
            issue([=] {
                auto* data = reinterpret_cast<float*>(sum.data);
                for (std::uint64_t i = 0; i < sum.numel; ++i)
                    data[i] *= overflows ? std::numeric_limits<float>::infinity() : 1024.0F;
            });
        }
        const double norm = client.session().gradient_norm() / 1024;
        const zero::UpdateReport report =
            client.session().update({.values = {.step = step + 1, .learning_rate = 1e-2},
                                     .clip = 0.01,
                                     .loss_scale = 1024,
                                     .overflow = zero::UpdateRequest::Overflow::skipped},
                                    [&](double given) {
                                        EXPECT_EQ(given, norm);
                                        return store::ClientState{{"step", std::to_string(step + 1)}};
                                    });
        EXPECT_EQ(report.updated, !overflows);
        EXPECT_EQ(report.committed, !overflows && GetParam().order == zero::UpdateWay::after_backward);
        if (overflows) {
            EXPECT_FALSE(std::isfinite(report.gradient_norm));
            continue;
        }
        EXPECT_EQ(report.gradient_norm, norm);
        plain.update(++step, zero::clip_factor(norm, 0.01));
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

std::string name_of(const ::testing::TestParamInfo<Setting>& instance) {
    return "setting_" + std::to_string(instance.index);
}

// Nothing of a scratch session is committed; it is read, and copied while it goes on, all the same.
TEST_P(CoreSessionTest, AScratchSessionIsReadAndCopiedAsItIs) {
    Setting setting = GetParam();
    setting.durability = zero::Durability::scratch;
    setting.snapshots = true;
    PlainLoop plain(units());
    const std::string kept = parent_ / "kept";
    std::map<PlainLoop::Id, PlainLoop::Parameter> copied;
    {
        Client client(path(), setting);
        for (std::uint64_t step = 1; step <= 4; ++step) {
            plain_pass(client, plain, step);
            client.update(step);
            plain.update(step, 1);
            if (step != 2) continue;
            client.session().begin_snapshot(kept);  // whose tiles the next steps overwrite
            copied = plain.parameters();
        }
        client.session().finish_snapshot([](const zero::SnapshotProgress&) { return true; });
        for (const zero::EndedSnapshot& ended : client.session().take_snapshots())
            EXPECT_FALSE(ended.problem) << *ended.problem;
        EXPECT_TRUE(client.state() == plain.parameters());
        client.session().begin_snapshot(kept + "2");  // of what was read
        client.session().finish_snapshot([](const zero::SnapshotProgress&) { return true; });
        EXPECT_FALSE(client.session().committed());
        if (client.session().layout().all_resident()) {
            EXPECT_EQ(std::filesystem::file_size(path() + "/data"), 0U);
        }
    }
    setting.resume_from = kept;
    Client again(path(), setting);  // another scratch one
    EXPECT_EQ(again.steps(), 2);
    EXPECT_TRUE(again.state() == copied);
    if (again.session().layout().all_resident()) {
        EXPECT_EQ(std::filesystem::file_size(path() + "/data"), 0U);
    }
    setting.resume_from = kept + "2";
    setting.durability = {};
    Client durable(path() + "2", setting);
    EXPECT_EQ(durable.steps(), 4);
    EXPECT_TRUE(durable.state() == plain.parameters());
}

TEST_P(CoreSessionTest, AScratchSessionOverACommittedStoreHasNoSnapshots) {
    Setting setting = GetParam();
    { Client client(path(), setting); }
    setting.durability = zero::Durability::scratch;
    { Client client(path(), setting); }
    setting.snapshots = true;
    const std::string text = refusal_of(ExitCode::usage, [&] { Client client(path(), setting); });
    EXPECT_NE(text.find("has a committed store: a snapshot would be of what was committed before"), std::string::npos)
        << text;
}

INSTANTIATE_TEST_SUITE_P(Settings, CoreSessionTest,
                         ::testing::ValuesIn(in_each_order({Setting{}, Setting{.depth = 0},
                                                            Setting{.residency = {zero::Tier::host, zero::Tier::nvme}},
                                                            Setting{.residency = {zero::Tier::nvme, zero::Tier::host}},
                                                            Setting{.residency = {zero::Tier::host, zero::Tier::host}},
                                                            Setting{.resident_units = {0, 2}},
                                                            Setting{.fill_bytes = some_weights},
                                                            Setting{.fill_bytes = some_states}})),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Devices, CoreSessionTest, ::testing::ValuesIn(device_settings()), name_of);

TEST_F(CoreSessionTest, RoomForSomeTilesOfAUnitsStatesKeepsThose) {
    const TemporaryDirectory parent;
    Client client(parent / "swap", {.fill_bytes = some_states});
    const zero::ModelLayout& layout = client.session().layout();
    int partly = 0;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        partly += layout.states_bytes(unit, zero::Tier::host) > 0 && layout.states_bytes(unit, zero::Tier::nvme) > 0;
    EXPECT_EQ(partly, 1);
}

// A step whose update is deferred is durable when the next pass has visited all units, and not before.
TEST_F(CoreSessionTest, ADeferredStepIsCommittedWithinTheNextPass) {
    for (const zero::DeviceKind device : devices()) {
        const TemporaryDirectory parent;
        const Setting setting{.device = device, .order = zero::UpdateWay::deferred};
        PlainLoop plain(units());
        {
            Client client(parent / "swap", setting);
            PlainLoop lost(units());
            plain_pass(client, lost, 1);
            EXPECT_FALSE(client.update(1).committed);
            EXPECT_FALSE(client.session().committed());
        }
        {
            Client client(parent / "swap", setting);
            EXPECT_EQ(client.steps(), 0U);
            plain_pass(client, plain, 1);
            EXPECT_FALSE(client.update(1).committed);
            plain.update(1, 1);
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
            while (!client.session().committed()) std::this_thread::yield();
        }
        Client client(parent / "swap", setting);
        EXPECT_EQ(client.steps(), 1U);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// Gradients of a tied parameter count whenever they come.
TEST_F(CoreSessionTest, ABorrowedSumThatComesAfterThePassIsTakenIn) {
    PlainLoop plain(units());
    Client client(path(), {.device = zero::DeviceKind::cpu});
    plain_pass(client, plain, 1);
    const double norm = client.session().gradient_norm();
    const Values more(7000, 0.125F);
    client.session().add_gradient({4, 1},
                                  {reinterpret_cast<const std::byte*>(more.data()), zero::PlaneType::fp32, 7000});
    EXPECT_GT(client.session().gradient_norm(), norm);
    client.session().begin_pass(Pass::training);
    client.session().end_pass();
    client.update(1);
    plain.add({0, 0}, more);
    plain.update(1, 1);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// What a held unit borrows is held with it, where the window is so tight that anything else has to move.
TEST_F(CoreSessionTest, TheOwnerOfWhatAHeldUnitBorrowsIsHeldToo) {
    Setting tight{.device = zero::DeviceKind::cpu};
    tight.depth = 0;
    Client client(path(), tight);
    const std::uint32_t held[] = {4};
    std::mt19937_64 random(3);
    int refused = 0;
    for (int round = 0; round < 200; ++round) {
        client.session().begin_pass(Pass::inference);
        client.forward(static_cast<std::uint32_t>(random() % 5));
        client.forward(static_cast<std::uint32_t>(random() % 5));
        client.forward(4);
        const std::byte* where = client.session().weights({4, 1}).data;
        try {
            client.session().visit({{4, static_cast<std::uint32_t>(random() % 4)}}, held);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::does_not_fit) << error.what();
            ++refused;
        }
        EXPECT_EQ(client.session().weights({4, 1}).data, where);
        EXPECT_EQ(*reinterpret_cast<const float*>(where), first_value(0, 0, 0));
    }
    EXPECT_GT(refused, 0) << "the window was not tight";
    EXPECT_LT(client.session().counters().visits.visits, 200U * 4) << "a visit that was refused was not made";
}

TEST_F(CoreSessionTest, AWrongKeyOfTheUserIsRefusedBeforeAnythingHasChanged) {
    PlainLoop plain(units());
    Client client(path(), {});
    plain_pass(client, plain, 1);
    client.session().user_state()["mine"] = "1";
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { client.update(1); }),
              "the user's key 'mine' does not begin with 'user.'");
    client.session().user_state().clear();
    client.update(1);
    plain.update(1, 1);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// A deferred commit comes when the client is further already.
TEST_F(CoreSessionTest, ADeferredCommitHasTheUserStateOfItsStep) {
    PlainLoop plain(units());
    const Setting deferred{.order = zero::UpdateWay::deferred};
    {
        Client client(path(), deferred);
        for (std::uint64_t step = 1; step <= 2; ++step) {
            client.session().user_state()["user.at"] = std::to_string(step);
            plain_pass(client, plain, step);
            client.update(step);
            plain.update(step, 1);
        }
        client.session().user_state()["user.at"] = "3";
        client.session().settle();
        client.session().user_state()["user.at"] = "4";
        client.session().settle();  // nothing is open any more
    }
    Client client(path(), deferred);
    EXPECT_EQ(client.steps(), 2U);
    EXPECT_EQ(client.session().user_state().at("user.at"), "2");
}

using CoreSessionDeathTest = CoreSessionTest;

TEST_F(CoreSessionDeathTest, CallsOutOfTurnAreRefused) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(Client(path(), {}).session().visit({{0}}), "no pass has begun");
    EXPECT_DEATH(
        {
            Client client(path(), {});
            client.session().begin_pass(Pass::training);
            client.update(1);
        },
        "an update within a pass");
    EXPECT_DEATH(
        {
            Client client(path(), {});
            client.session().begin_pass(Pass::training);
            client.session().visit({{1}});
            client.session().weights({2, 0});
        },
        "which is not visited");
    EXPECT_DEATH(Client(path(), {}).session().open_gradient({1, 1}), "is frozen and has no gradient");
}

TEST_F(CoreSessionDeathTest, AUnitThatBorrowsWhatComesAfterItIsRefused) {
    zero::ModelSpec model{.units = units(), .optimizers = zero::make_adamw({})};
    model.units[0].borrowed = {{4, 0}};
    zero::CoreOptions options;
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { zero::SessionPlan(std::move(model), options, ample_room(), {}); }),
              "unit 'first' borrows parameter 0 of unit 4, which does not come before it");
}

}  // namespace
}  // namespace penstock::testing
