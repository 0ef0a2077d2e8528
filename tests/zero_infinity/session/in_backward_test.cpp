// Units that are updated within the pass that gives them their last gradient.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/session/begun_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace penstock::testing {
namespace {

class InBackwardTest : public ComputeTest {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

zero::UpdateRequest request_of(std::uint64_t step) {
    return {.values = {.step = step, .learning_rate = 1e-2}};
}

void backward(Client& client, PlainLoop& plain, std::uint32_t unit, std::uint64_t time) {
    client.backward(unit, time);
    plain.backward(unit, time);
}

Setting in_backward() {
    return {.device = zero::DeviceKind::cpu, .order = zero::UpdateWay::within};
}

Setting one_unit() {
    Setting setting = in_backward();
    setting.gradient_memory = zero::GradientMemory::one_unit;
    return setting;
}

zero::SessionPlan plan_of(zero::GradientMemory memory, zero::UpdateWay order, std::vector<std::uint32_t> resident) {
    zero::ModelSpec model{.units = units(), .optimizers = zero::make_adamw({})};
    for (const std::uint32_t unit : resident) model.units[unit].resident = true;
    zero::CoreOptions options;
    options.codec = "plain_fp32";
    options.gradient_type = zero::PlaneType::fp32;
    options.tile_numel = 4096;
    options.host_budget_bytes = 32 << 20;
    zero::update_by(order, options);
    options.gradient_memory = memory;
    return {model, options, ample_room(), {}};
}

// The last unit borrows, so it keeps its own.
TEST_F(InBackwardTest, MemoryIsThatOfTheLargestUnitAndOfThoseThatKeepTheirs) {
    const auto bytes = [](zero::GradientMemory memory, std::vector<std::uint32_t> resident) {
        const zero::SessionPlan plan = plan_of(memory, zero::UpdateWay::within, std::move(resident));
        for (const auto& use : plan.memory.budget.uses())
            if (use.name == zero::gradients_use) return use.bytes;
        return std::uint64_t{0};
    };
    const zero::ModelLayout& layout = plan_of({}, zero::UpdateWay::within, {}).layout;
    std::vector<std::uint64_t> own;
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
        own.push_back(pool::whole_granules(4 * layout.unit(unit).trainable_numel()));
    const std::uint64_t borrowed = pool::whole_granules(4 * numel_of(units(), {0, 0}));
    using enum zero::GradientMemory;
    EXPECT_EQ(bytes(all_units, {}), std::accumulate(own.begin(), own.end(), borrowed));
    EXPECT_EQ(bytes(one_unit, {}), *std::max_element(own.begin(), own.end() - 1) + own.back() + borrowed);
    EXPECT_EQ(bytes(one_unit, {0}), own[0] + *std::max_element(own.begin() + 1, own.end() - 1) + own.back() + borrowed);
}

TEST_F(InBackwardTest, OneUnitsGradientsNeedThatOrder) {
    for (const auto& [way, word] : {std::pair{zero::UpdateWay::after_backward, "after_backward"},
                                    {zero::UpdateWay::deferred, "deferred"},
                                    {zero::UpdateWay::speculative, "within"},
                                    {zero::UpdateWay::balanced, "within"}})
        EXPECT_EQ(refusal_of(ExitCode::usage, [&, way = way] { plan_of(zero::GradientMemory::one_unit, way, {}); }),
                  "update_order \"" + std::string(word) +
                      "\" with gradient_memory one_unit: it needs \"within\", without a clip and deferred_share, which "
                      "updates a unit before the next one's gradients come");
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
    for (std::uint64_t step = 1; step <= 3; ++step) run(client, plain, {.step = step});
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
    EXPECT_DEATH(begun([](Client& client) { client.session().begin_step(request_of(1)); }),
                 "begins within a pass or step");
    EXPECT_DEATH(
        {
            Client client(path(), in_backward());
            client.session().begin_pass(Pass::inference);
            client.session().begin_step(request_of(1));
        },
        "begins within a pass or step");
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

TEST_F(InBackwardDeathTest, GradientsOfTwoUnitsAreRefusedWhereMemoryHasThoseOfOne) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto begun = [&](auto call) {
        Client client(path(), one_unit());
        client.session().begin_step(request_of(1));
        client.session().begin_pass(Pass::training);
        client.backward(4, 1);  // has its own
        client.backward(3, 1);
        call(client);
    };
    const char* const words = "gradients of unit 2 while memory, which is that of one unit, has those of unit 3";
    EXPECT_DEATH(begun([](Client& client) { client.backward(2, 1); }), words);
    EXPECT_DEATH(begun([](Client& client) {
                     client.forward(2);
                     client.session().complete(2);
                 }),
                 words);
    // What is borrowed of unit 0 is added there.
    EXPECT_DEATH(begun([](Client& client) { client.session().end_pass(); }),
                 "gradients of unit 0 while memory, which is that of one unit, has those of unit 3");
    EXPECT_DEATH(begun([](Client& client) {
                     client.session().complete(3);
                     client.session().gradient({3, 0});
                 }),
                 "is updated and has no gradient any more");
    Setting setting = one_unit();
    setting.resident_units = {0, 1, 2, 3};  // which have their own
    EXPECT_DEATH(
        {
            Client client(path(), setting);
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, 1);
            client.session().end_pass();
            client.update(1);
        },
        "all units lend gradients that memory has of one");
}

// Beside a unit that was updated and one that no gradient came to.
TEST_F(InBackwardTest, AGradientThatIsNotFiniteIsFoundWhereMemoryHasThoseOfOneUnit) {
    Client client(path(), one_unit());
    client.session().begin_step(request_of(1));
    client.session().begin_pass(Pass::training);
    for (const std::uint32_t unit : {4U, 3U}) {
        client.backward(unit, 1);
        client.session().complete(unit);
    }
    client.backward(1, 1);
    const Values addend(numel_of(units(), {1, 0}), std::numeric_limits<float>::quiet_NaN());
    client.session().add_gradient(
        {1, 0}, {reinterpret_cast<const std::byte*>(addend.data()), zero::PlaneType::fp32, addend.size()});
    const std::string said = refusal_of(ExitCode::non_finite, [&] { client.session().complete(1); });
    EXPECT_NE(said.find("first in unit 'second'"), std::string::npos) << said;
}

}  // namespace
}  // namespace penstock::testing
