// Units that are updated within the pass that gives them their last gradient.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/session_client.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>

namespace penstock::testing {
namespace {

class InBackwardTest : public ComputeTest, public ::testing::WithParamInterface<Setting> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

zero::UpdateRequest request_of(std::uint64_t step) {
    return {.values = {.step = step, .learning_rate = 1e-2}};
}

void forward(Client& client) {
    for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
}

void backward(Client& client, PlainLoop& plain, std::uint32_t unit, std::uint64_t time) {
    client.backward(unit, time);
    plain.backward(unit, time);
}

// One pass of a step whose units are updated within, where `complete` says so.
template <typename Complete>
void step(Client& client, PlainLoop& plain, std::uint64_t number, const Complete& complete) {
    client.session().begin_step(request_of(number));
    client.session().begin_pass(Pass::training);
    forward(client);
    for (std::uint32_t unit = 5; unit-- > 0;) {
        backward(client, plain, unit, number);
        if (complete(unit)) client.session().complete(unit);
    }
    client.session().end_pass();
    plain.end_pass();
    EXPECT_TRUE(client.update(number).committed);
    plain.update(number, 1);
}

bool sees(Client& client, const PlainLoop& plain) {
    client.session().begin_pass(Pass::inference);
    bool right = true;
    for (const auto& [id, parameter] : plain.parameters()) {
        client.forward(id.first);
        right = right && holds(client.session().weights({id.first, id.second}), parameter.value);
    }
    client.session().end_pass();
    return right;
}

TEST_P(InBackwardTest, StepsAreThoseOfThePlainLoop) {
    std::mt19937_64 random(5);
    PlainLoop plain(units());
    for (std::uint64_t life = 0; life < 2; ++life) {
        Client client(path(), GetParam());
        for (std::uint64_t number = 4 * life + 1; number <= 4 * life + 4; ++number) {
            if (number % 3 == 0) {  // gradients of a pass before
                client.session().begin_pass(Pass::training);
                for (std::uint32_t unit = 5; unit-- > 0;) backward(client, plain, unit, number + 100);
                client.session().end_pass();
                plain.end_pass();
            }
            step(client, plain, number, [&](std::uint32_t) { return number % 2 == 0 || random() % 2 == 0; });
            if (number % 4 != 1) {
                EXPECT_TRUE(sees(client, plain)) << number;
            }
        }
        EXPECT_EQ(client.steps(), 4 * life);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// With a norm that is that of any other order.
TEST_P(InBackwardTest, AStepThatWasNotBegunIsUpdatedByItsUpdate) {
    PlainLoop plain(units());
    Client client(path(), GetParam());
    const auto always = [](std::uint32_t) { return true; };
    step(client, plain, 1, always);
    client.session().begin_pass(Pass::training);
    for (std::uint32_t unit = 5; unit-- > 0;) backward(client, plain, unit, 7);
    client.session().end_pass();
    plain.end_pass();
    const double norm = client.session().gradient_norm();
    EXPECT_EQ(client.update(2, norm / 2).gradient_norm, norm);
    plain.update(2, zero::clip_factor(norm, norm / 2));
    step(client, plain, 3, always);
    EXPECT_TRUE(client.state() == plain.parameters());
    EXPECT_TRUE(sees(client, plain));
}

TEST_P(InBackwardTest, TheNormIsThatOfAnUpdateAfterwards) {
    PlainLoop plain(units()), other(units());
    double norm = 0;
    {
        Client client(path(), GetParam());
        client.session().begin_pass(Pass::training);
        for (std::uint32_t unit = 5; unit-- > 0;) backward(client, other, unit, 1);
        client.session().end_pass();
        norm = client.session().gradient_norm();
    }
    Client client(path(), GetParam());
    client.session().begin_step(request_of(1));
    client.session().begin_pass(Pass::training);
    forward(client);
    for (std::uint32_t unit = 5; unit-- > 0;) {
        backward(client, plain, unit, 1);
        if (unit != 2) client.session().complete(unit);
    }
    client.session().end_pass();
    EXPECT_EQ(client.session().gradient_norm(), norm);
    EXPECT_EQ(client.update(1).gradient_norm, norm);
}

INSTANTIATE_TEST_SUITE_P(
    Settings, InBackwardTest, ::testing::ValuesIn([] {
        std::vector<Setting> all = device_settings();
        std::erase_if(all, [](const Setting& each) { return each.order != zero::UpdateOrder::deferred; });
        all.insert(all.end(),
                   {Setting{}, Setting{.depth = 0}, Setting{.residency = {zero::Tier::host, zero::Tier::nvme}},
                    Setting{.residency = {zero::Tier::nvme, zero::Tier::host}},
                    Setting{.residency = {zero::Tier::host, zero::Tier::host}}, Setting{.resident_units = {0, 2}},
                    Setting{.fill_bytes = some_weights}, Setting{.fill_bytes = some_states}});
        for (Setting& each : all) each.order = zero::UpdateOrder::in_backward;
        return all;
    }()),
    [](const auto& instance) { return "setting_" + std::to_string(instance.index); });

Setting in_backward() {
    return {.device = zero::DeviceKind::cpu, .order = zero::UpdateOrder::in_backward};
}

TEST_F(InBackwardTest, AParameterThatIsSkippedStaysAsItIs) {
    PlainLoop plain(units(zero::Unused::skipped));
    Setting setting = in_backward();
    setting.unused = zero::Unused::skipped;
    for (std::uint64_t life = 0; life < 2; ++life) {
        Client client(path(), setting);
        for (std::uint64_t number = 3 * life + 1; number <= 3 * life + 3; ++number) {
            client.session().begin_step(request_of(number));
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 5; unit-- > 0;) {
                if (unit == 2 && number % 2 == 0)
                    client.forward(unit);
                else
                    backward(client, plain, unit, number);
                client.session().complete(unit);
            }
            client.session().end_pass();
            plain.end_pass();
            client.update(number);
            plain.update(number, 1);
        }
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// What was committed stays.
TEST_F(InBackwardTest, AMissingGradientEndsTheSession) {
    PlainLoop plain(units());
    {
        Client client(path(), in_backward());
        client.session().begin_step(request_of(1));
        client.session().begin_pass(Pass::training);
        backward(client, plain, 4, 1);
        client.session().complete(4);
        client.forward(2);
        EXPECT_EQ(refusal_of(ExitCode::usage, [&] { client.session().complete(2); }),
                  "no gradient came to unit 'third', parameters 'expert': the loss does not depend on them. Use them, "
                  "freeze them, or say that a step may do without");
        EXPECT_EQ(client.session().stage(), zero::CoreSession::Stage::failed);
    }
    Client client(path(), in_backward());
    EXPECT_EQ(client.steps(), 0U);
    EXPECT_TRUE(client.state() == PlainLoop(units()).parameters());
}

TEST_F(InBackwardTest, AGradientThatIsNotFiniteEndsTheSession) {
    for (const bool complete : {true, false}) {
        {
            PlainLoop plain(units());
            Client client(path(), in_backward());
            client.session().begin_step(request_of(1));
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 5; unit-- > 1;) {
                backward(client, plain, unit, 1);
                client.session().complete(unit);
            }
            client.backward(0, 1);
            const float bad = std::numeric_limits<float>::infinity();
            const Values addend(7000, bad);
            client.session().add_gradient(
                {0, 0}, {reinterpret_cast<const std::byte*>(addend.data()), zero::PlaneType::fp32, addend.size()});
            const std::string said = refusal_of(ExitCode::non_finite, [&] {
                if (complete) client.session().complete(0);
                client.session().end_pass();
                client.update(1);
            });
            EXPECT_EQ(said,
                      "the gradient of step 1 is not finite, first in unit 'first', parameter 'table'; the last "
                      "committed step is untouched");
            EXPECT_EQ(client.session().stage(), zero::CoreSession::Stage::failed);
        }
        Client client(path(), in_backward());
        EXPECT_EQ(client.steps(), 0U);
        EXPECT_TRUE(client.state() == PlainLoop(units()).parameters());
    }
}

// Split: states 8 + 2 bytes are all that it reads, where weights come twice for the pass.
TEST_F(InBackwardTest, TheTrafficIsPlanned) {
    PlainLoop plain(units());
    Client client(path(), in_backward());
    const auto before = client.session().counters();
    const auto always = [](std::uint32_t) { return true; };
    for (std::uint64_t number = 1; number <= 3; ++number) step(client, plain, number, always);
    const auto after = client.session().counters();
    EXPECT_EQ(after.read_bytes - before.read_bytes, 3 * client.session().info().step_bytes.read);
}

using InBackwardDeathTest = InBackwardTest;

TEST_F(InBackwardDeathTest, CallsOutOfTurnAreRefused) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto begun = [&](auto call) {
        Client client(path(), in_backward());
        client.session().begin_step(request_of(1));
        client.session().begin_pass(Pass::training);
        client.backward(4, 1);
        call(client);
    };
    EXPECT_DEATH(Client(path(), {}).session().begin_step(request_of(1)), "cannot be updated before its norm is known");
    EXPECT_DEATH(
        {
            Client client(path(), in_backward());
            client.session().begin_step({.values = {.step = 1}, .clip = 1});
        },
        "cannot be updated before its norm is known");
    EXPECT_DEATH(begun([](Client& client) {
                     client.session().complete(4);
                     client.backward(4, 1);
                 }),
                 "which was said to have all of them");
    EXPECT_DEATH(begun([](Client& client) {
                     client.backward(1, 1);
                     client.forward(3);
                     client.session().complete(1);
                 }),
                 "is not visited");
    EXPECT_DEATH(begun([](Client& client) {
                     client.session().end_pass();
                     client.session().settle();
                 }),
                 "a commit within step 1");
    EXPECT_DEATH(begun([](Client& client) {
                     client.session().end_pass();
                     client.update(2);
                 }),
                 "an update of step 2, but step 1 was begun");
}

}  // namespace
}  // namespace penstock::testing
