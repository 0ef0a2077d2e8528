// What a client reads and writes of a model in training beside its passes: values of parameters, units that stay in
// memory, types of frozen weights, sums that it changes, memory that outlives the session.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/ample_room.h"
#include "tests/zero_infinity/ranks/recording_transport.h"
#include "tests/zero_infinity/session/session_client.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

using zero::ParameterValue;

class ValuesTest : public ComputeTest, public ::testing::WithParamInterface<Setting> {
   protected:
    std::string path() const { return parent_ / "swap"; }
    const TemporaryDirectory parent_;
};

void step(Client& client, PlainLoop& plain, std::uint64_t number) {
    backward_pass(client, plain, number);
    client.update(number);
    plain.update(number, 1);
}

Values other_values(std::uint64_t numel) {
    Values values;
    for (std::uint64_t i = 0; i < numel; ++i) values.push_back(static_cast<float>(i % 13) / 8 - 0.75F);
    return values;
}

// Replaces one value of one parameter.
void write(Client& client, const std::string& name, ParameterValue value, const Values& values) {
    zero::WeightFunction source([&](const zero::NamedParameter&, std::uint64_t first, std::span<float> out) {
        std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(first), out.size(), out.begin());
    });
    client.session().write_in(
        {.value = value, .wanted = [&](const zero::NamedParameter& each) { return each.name() == name; }}, source);
}

void write_some(Client& client, PlainLoop& plain) {
    write(client, "second.a", ParameterValue::weight, plain.parameters()[{1, 0}].value = other_values(5000));
    write(client, "second.fixed", ParameterValue::weight, plain.parameters()[{1, 1}].value = other_values(300));
    write(client, "fourth.a", ParameterValue::moment0, plain.parameters()[{3, 0}].m = other_values(12345));
}

TEST_P(ValuesTest, WhatIsWrittenIsTrainedOn) {
    PlainLoop plain(units());
    for (std::uint64_t life = 0; life < 2; ++life) {
        Client client(path(), GetParam());
        step(client, plain, 5 * life + 1);
        write_some(client, plain);
        step(client, plain, 5 * life + 2);
        step(client, plain, 5 * life + 3);
        EXPECT_TRUE(client.state() == plain.parameters());  // settles
        write_some(client, plain);
        EXPECT_TRUE(client.state() == plain.parameters());
        step(client, plain, 5 * life + 4);
        write_some(client, plain);
        step(client, plain, 5 * life + 5);
        client.session().settle();
    }
    Client client(path(), GetParam());
    EXPECT_EQ(client.steps(), 10U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// What one rank asks is what each of several would: once for each commit, and not where the norm has.
TEST_P(ValuesTest, AWriteThatNoNormCameBeforeGathersWhatAllHaveCommitted) {
    const std::vector<std::string> gathered{"what is committed"};
    PlainLoop plain(units());
    RecordedRank rank;
    std::vector<std::string>& log = rank.control.log;
    Client client(path(), GetParam(), {.ranks = rank.ways()});
    EXPECT_EQ(std::exchange(log, {}), std::vector<std::string>{"the incarnation"});
    for (std::uint64_t number = 1; number <= 3; ++number) {
        write_some(client, plain);
        EXPECT_EQ(std::exchange(log, {}), gathered);
        client.session().settle();
        EXPECT_TRUE(log.empty());
    }
    step(client, plain, 1);
    EXPECT_EQ(log, std::vector<std::string>{"the norm"});
    EXPECT_EQ(rank.control.committed(), 3U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

// Compute reads the new values in the very next pass, though the window has the unit.
TEST_P(ValuesTest, WhatIsWrittenIsReadByTheNextPass) {
    PlainLoop plain(units());
    Client client(path(), GetParam());
    client.session().begin_pass(Pass::inference);
    client.forward(1);
    client.session().end_pass();
    write_some(client, plain);
    client.session().begin_pass(Pass::inference);
    client.forward(1);
    for (const std::uint32_t index : {0U, 1U}) {
        EXPECT_TRUE(holds(client.session().weights({1, index}), plain.parameters()[{1, index}].value)) << index;
    }
    client.session().end_pass();
}

TEST_P(ValuesTest, WhatIsWrittenIsDurableWithTheNextCommitOnly) {
    PlainLoop plain(units());
    {
        Client client(path(), GetParam());
        PlainLoop written(units());
        write_some(client, written);
    }
    {
        Client client(path(), GetParam());
        EXPECT_TRUE(client.state() == plain.parameters());
        write_some(client, plain);
        client.session().settle();
    }
    Client client(path(), GetParam());
    EXPECT_EQ(client.steps(), 0U);
    EXPECT_TRUE(client.state() == plain.parameters());
}

INSTANTIATE_TEST_SUITE_P(
    Settings, ValuesTest,
    ::testing::ValuesIn(in_each_order({Setting{}, Setting{.residency = {zero::Tier::host, zero::Tier::host}},
                                       Setting{.residency = {zero::Tier::host, zero::Tier::nvme}, .durability = {4}},
                                       Setting{.residency = {zero::Tier::host, zero::Tier::host}, .durability = {4}},
                                       Setting{.durability = {3}, .resident_units = {1, 3}},
                                       Setting{.durability = {3}, .fill_bytes = some_states}})),
    [](const auto& instance) { return "setting_" + std::to_string(instance.index); });
INSTANTIATE_TEST_SUITE_P(Devices, ValuesTest, ::testing::ValuesIn(device_settings()),
                         [](const auto& instance) { return "setting_" + std::to_string(instance.index); });

TEST_P(ValuesTest, AResidentUnitIsReadableAtAnyTimeAtOneAddress) {
    PlainLoop plain(units());
    Setting setting = GetParam();
    setting.resident_units = {1};
    Client client(path(), setting);
    const std::byte* where = client.session().weights({1, 0}).data;
    for (std::uint64_t number = 1; number <= 3; ++number) {
        EXPECT_TRUE(holds(client.session().weights({1, 0}), plain.parameters()[{1, 0}].value));
        step(client, plain, number);
        ASSERT_EQ(client.session().weights({1, 0}).data, where);
        EXPECT_TRUE(holds(client.session().weights({1, 0}), plain.parameters()[{1, 0}].value));
        write_some(client, plain);
        EXPECT_TRUE(holds(client.session().weights({1, 0}), plain.parameters()[{1, 0}].value));
        EXPECT_TRUE(holds(client.session().weights({1, 1}), plain.parameters()[{1, 1}].value));
    }
    client.session().begin_pass(Pass::training);
    client.forward(0);
    EXPECT_EQ(client.session().weights({1, 0}).data, where);
    client.session().end_pass();
}

// It costs no reads, and the plan knows.
TEST_F(ValuesTest, TheTrafficOfAStepIsPlannedWithTheResidentUnits) {
    std::uint64_t streamed = 0;
    for (const std::vector<std::uint32_t>& residents : {std::vector<std::uint32_t>{}, {3}}) {
        const TemporaryDirectory parent;
        PlainLoop plain(units());
        Client client(parent / "swap", {.resident_units = residents});
        std::uint64_t before = 0;
        for (std::uint64_t number = 1; number <= 3; ++number) {
            before = client.session().counters().read_bytes;
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 0; unit < 4; ++unit) client.forward(unit);
            for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, number);
            client.session().end_pass();
            client.update(number);
        }
        const std::uint64_t read = client.session().counters().read_bytes - before;
        EXPECT_EQ(read, client.session().info().step_bytes.read);
        if (residents.empty()) streamed = read;
        EXPECT_EQ(read < streamed, !residents.empty());
    }
}

// Forward and a deferred update read weights once for both.
TEST_F(ValuesTest, TheTrafficOfADeferredStepIsPlanned) {
    std::uint64_t after = 0;
    for (const zero::UpdateWay order : {zero::UpdateWay::after_backward, zero::UpdateWay::deferred}) {
        const TemporaryDirectory parent;
        Client client(parent / "swap", {.order = order});
        const zero::ModelLayout& layout = client.session().layout();
        std::uint64_t weights = 0;
        for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit)
            weights += layout.memory_bytes(layout.objects(unit).weights);
        const std::uint64_t before = client.session().counters().read_bytes;
        for (std::uint64_t number = 1; number <= 3; ++number) {
            client.session().begin_pass(Pass::training);
            for (std::uint32_t unit = 0; unit < 4; ++unit) client.forward(unit);
            for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, number);
            client.session().end_pass();
            client.update(number);
        }
        client.session().settle();
        // The last update is not within a pass that wants the weights.
        const std::uint64_t last = order == zero::UpdateWay::deferred ? weights : 0;
        const std::uint64_t read = client.session().counters().read_bytes - before;
        EXPECT_EQ(read, 3 * client.session().info().step_bytes.read + last) << word_of(order);
        if (order == zero::UpdateWay::after_backward)
            after = client.session().info().step_bytes.read;
        else {
            EXPECT_EQ(client.session().info().step_bytes.read, after - weights);
        }
    }
}

TEST_F(ValuesTest, FrozenWeightsHaveATypeOfTheirOwn) {
    for (const zero::PlaneType type :
         {zero::PlaneType::bf16, zero::PlaneType::fp16, zero::PlaneType::fp32, zero::PlaneType::u8}) {
        const TemporaryDirectory parent;
        PlainLoop plain(units());
        Client client(parent / "swap", {.frozen_type = type});
        Values bytes(300);
        for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<float>(i % 256);
        write(client, "second.fixed", ParameterValue::weight, bytes);
        client.session().begin_pass(Pass::inference);
        client.forward(1);
        const zero::ParameterMemory there = client.session().weights({1, 1});
        EXPECT_EQ(there.type, type);
        ASSERT_EQ(there.numel, 300U);
        const std::vector<std::byte> seen = seen_by_compute(there);
        Values read(300);
        for (std::size_t i = 0; i < read.size() && type == zero::PlaneType::u8; ++i)
            read[i] = std::to_integer<std::uint8_t>(seen[i]);
        zero::convert({seen.data(), type == zero::PlaneType::u8 ? zero::PlaneType::fp32 : type,
                       type == zero::PlaneType::u8 ? 0U : 300U},
                      zero::PlaneType::fp32, reinterpret_cast<std::byte*>(read.data()));
        EXPECT_EQ(read, bytes);
        client.session().end_pass();
        EXPECT_EQ(client.session().layout().objects()[*client.session().layout().objects(1).frozen].bytes,
                  320 * zero::bytes_of(type));
    }
}

TEST_F(ValuesTest, AStoreWithFrozenWeightsOfAnotherTypeIsRefused) {
    { const Client client(path(), {.frozen_type = zero::PlaneType::bf16}); }
    const std::string text =
        refusal_of(ExitCode::usage, [&] { Client(path(), {.frozen_type = zero::PlaneType::fp16}); });
    EXPECT_NE(text.find("was made for another model, codec or optimizer (its units have the sizes of these; "),
              std::string::npos)
        << text;
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { Client(parent_ / "new", {.frozen_type = zero::PlaneType::u16}); }),
              "unit 'first': frozen parameters are bf16, fp16, fp32 or u8");
}

// A client that holds a sum may change it at any time, and no call says so.
TEST_F(ValuesTest, TheNormIsThatOfSumsAsTheClientLeftThem) {
    PlainLoop plain(units());
    Client client(path(), {});
    client.session().begin_pass(Pass::training);
    for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, 1);
    client.session().end_pass();
    const auto sum = client.session().gradient({3, 0});
    const double norm = client.session().gradient_norm();
    auto* data = reinterpret_cast<float*>(sum->data);
    for (std::uint64_t i = 0; i < sum->numel; ++i) data[i] *= 3;
    EXPECT_GT(client.session().gradient_norm(), norm);
}

TEST_P(ValuesTest, MemoryOutlivesASessionThatGaveItsStoreBack) {
    Setting setting = GetParam();
    setting.resident_units = {1};
    Client first(path(), setting);
    const zero::ParameterMemory there = first.session().weights({1, 0});
    first.session().end();
    EXPECT_EQ(first.session().stage(), zero::CoreSession::Stage::failed);
    EXPECT_EQ(*reinterpret_cast<const float*>(there.data), first_value(1, 0, 0));
    Client second(path(), setting);
    EXPECT_EQ(*reinterpret_cast<const float*>(there.data), first_value(1, 0, 0));
}

// What is not given is planned: the same as a budget of just that, and no byte more.
TEST_F(ValuesTest, ABudgetThatIsNotGivenIsWhatThePlanTakes) {
    zero::CoreOptions options;
    options.codec = "plain_fp32";
    options.tile_numel = 4096;
    options.host_budget_bytes = zero::planned_host_budget;
    const auto model = [] { return zero::ModelSpec{.units = units(), .optimizers = zero::make_adamw({})}; };
    const zero::SessionPlan planned(model(), options, ample_room(), {});
    EXPECT_EQ(planned.memory.budget.limit_bytes(), planned.memory.budget.used_bytes());
    EXPECT_EQ(planned.memory.window.depth, 2U);
    options.host_budget_bytes = planned.memory.budget.limit_bytes();
    EXPECT_EQ(zero::SessionPlan(model(), options, ample_room(), {}).memory.window.depth, 2U);
    options.host_budget_bytes -= 4096;
    EXPECT_LT(zero::SessionPlan(model(), options, ample_room(), {}).memory.window.depth, 2U);
}

}  // namespace
}  // namespace penstock::testing
