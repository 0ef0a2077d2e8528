// Updates of what host memory holds, beside compute on a device with memory of its own: compute goes on, and comes back
// to a unit only when it is updated.
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/zero_infinity/session/begun_step.h"
#include "tests/zero_infinity/session/gated_adamw.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace penstock::testing {
namespace {

class BesideTest : public ComputeTest {
   protected:
    std::string path() const { return parent_ / "swap"; }
    // Of the device of this program's compute that has memory of its own.
    Setting setting(zero::UpdateWay order, zero::Durability durability = {.commit_steps = 4}) {
        return {.device = devices().back(),
                .residency = {zero::Tier::host, zero::Tier::host},
                .durability = durability,
                .order = order,
                .gate = gate_};
    }
    const std::shared_ptr<Gate> gate_ = std::make_shared<Gate>();
    const TemporaryDirectory parent_;
};

// Opens the gate after a while, as if the update took so long.
class OpensLater {
   public:
    explicit OpensLater(Gate& gate)
        : thread_([&gate] {
              std::this_thread::sleep_for(std::chrono::milliseconds(30));
              gate.open();
          }) {}
    ~OpensLater() { thread_.join(); }

   private:
    std::thread thread_;
};

// For so many an optimizer is called: zero_infinity/optimizer/update.cpp.
std::size_t blocks_of(Client& client, const std::set<std::uint32_t>& units) {
    const zero::ModelLayout& layout = client.session().layout();
    std::size_t blocks = 0;
    for (const zero::UnitTile& tile : layout.tiles())
        if (units.contains(tile.unit)) blocks += (layout.unit(tile.unit).tile_numel(tile.tile) + 2047) / 2048;
    return blocks;
}

TEST_F(BesideTest, WithinAPassComputeGoesOnWhileUnitsAreUpdated) {
    PlainLoop plain(units());
    Client client(path(), setting(zero::UpdateWay::within));
    zero::CoreSession& session = client.session();
    for (std::uint64_t step = 1; step <= 6; ++step) {
        gate_->close();
        session.begin_step({.values = {.step = step, .learning_rate = 1e-2}});
        session.begin_pass(Pass::training);
        for (std::uint32_t unit = 0; unit < 5; ++unit) client.forward(unit);
        for (std::uint32_t unit = 5; unit-- > 0;) {
            client.backward(unit, step);
            plain.backward(unit, step);
            session.complete(unit);
        }
        EXPECT_EQ(gate_->passed(), 0U) << "nothing is updated, and backward is over";
        const OpensLater later(*gate_);
        session.end_pass();
        plain.end_pass();
        client.update(step);
        plain.update(step, 1);
        EXPECT_GT(gate_->passed(), 0U);
    }
    EXPECT_TRUE(sees(client, plain));
    EXPECT_TRUE(client.state() == plain.parameters());
}

// Once more within the same pass: with the new weights.
TEST_F(BesideTest, AVisitWaitsForTheUpdateOfItsUnit) {
    PlainLoop plain(units());
    Client client(path(), setting(zero::UpdateWay::within));
    zero::CoreSession& session = client.session();
    session.begin_step({.values = {.step = 1, .learning_rate = 1e-2}});
    session.begin_pass(Pass::training);
    for (std::uint32_t unit = 5; unit-- > 0;) {
        client.backward(unit, 1);
        plain.backward(unit, 1);
        if (unit > 0) session.complete(unit);
    }
    plain.end_pass();
    plain.update(1, 1);
    client.forward(1);  // once it is updated, and those before it
    client.forward(0);
    gate_->close();
    session.complete(0);
    client.forward(3);
    const OpensLater later(*gate_);
    client.forward(0);
    EXPECT_TRUE(gate_->is_open());
    EXPECT_TRUE(holds(session.weights({0, 0}), plain.parameters().at({0, 0}).value));
}

TEST_F(BesideTest, TheNextForwardFollowsADeferredUpdate) {
    PlainLoop plain(units());
    Client client(path(), setting(zero::UpdateWay::deferred));
    for (std::uint64_t step = 1; step <= 6; ++step) {
        backward_pass(client, plain, step);
        gate_->close();
        const double scale = zero::clip_factor(client.update(step, strikes).gradient_norm, strikes);
        plain.update(step, scale);
        client.session().begin_pass(Pass::training);
        EXPECT_EQ(gate_->passed(), 0U) << "the update is not waited for";
        const OpensLater later(*gate_);
        for (std::uint32_t unit = 0; unit < 5; ++unit) {
            client.forward(unit);
            EXPECT_TRUE(holds(client.session().weights({unit, 0}), plain.parameters().at({unit, 0}).value));
        }
        client.session().end_pass();
    }
    EXPECT_TRUE(client.state() == plain.parameters());
}

// That a model has units which stay on the device does not make it wait for the others.
TEST_F(BesideTest, OnlyUnitsThatStayAreWaitedForByADeferredUpdate) {
    PlainLoop plain(units());
    Setting with_residents = setting(zero::UpdateWay::deferred);
    with_residents.resident_units = {2, 4};
    Client client(path(), with_residents);
    for (std::uint64_t step = 1; step <= 3; ++step) {
        backward_pass(client, plain, step);
        gate_->close();
        const std::size_t staying = blocks_of(client, {2, 4});
        gate_->open_for(staying);
        client.update(step);
        plain.update(step, 1);
        EXPECT_EQ(gate_->passed(), staying);
        const OpensLater later(*gate_);
        EXPECT_TRUE(sees(client, plain));
    }
    EXPECT_TRUE(client.state() == plain.parameters());
}

// All of it, whatever the client does meanwhile.
TEST_F(BesideTest, ADeferredUpdateGoesOnByItself) {
    PlainLoop plain(units());
    Client client(path(), setting(zero::UpdateWay::deferred));
    const std::size_t blocks = blocks_of(client, {0, 1, 2, 3, 4});
    backward_pass(client, plain, 1);
    gate_->close();
    gate_->open();
    client.update(1);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (gate_->passed() < blocks && std::chrono::steady_clock::now() < until)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(gate_->passed(), blocks);
}

// Squares are summed while backward goes on, and again of what changed behind that: more of a pass, another pass, a
// client's own change.
TEST_F(BesideTest, TheNormIsThatOfTheSumsAsTheyAre) {
    for (const bool wanted : {false, true}) {
        Setting on_device = setting(zero::UpdateWay::deferred);
        Setting on_host = on_device;
        on_host.device = zero::DeviceKind::cpu;
        std::vector<std::vector<double>> norms;
        for (const Setting& each : {on_device, on_host}) {
            std::filesystem::remove_all(path());
            Client client(path(), each);
            zero::CoreSession& session = client.session();
            std::vector<double>& of = norms.emplace_back();
            for (std::uint64_t step = 1; step <= 4; ++step) {
                for (std::uint64_t pass = 1; pass <= step; ++pass) {
                    session.begin_pass(Pass::training);
                    for (std::uint32_t unit = 5; unit-- > 0;) client.backward(unit, 10 * step + pass);
                    if (pass % 2 == 0) client.backward(3, 10 * step + pass + 5);  // once more, behind the others
                    session.end_pass();
                    if (wanted) of.push_back(session.gradient_norm());
                }
                if (step == 2) {
                    const auto sum = session.gradient({1, 0});
                    reinterpret_cast<float*>(sum->data)[3] += 0.25F;
                }
                if (step == 3) session.clear_gradient({3, 0});
                if (step == 3) client.session().make_gradient({3, 0});
                of.push_back(client.update(step, step % 2 == 0 ? strikes : misses).gradient_norm);
            }
        }
        EXPECT_EQ(norms[0], norms[1]);
    }
}

// Whatever a client does instead of going on: each call finds the step whole.
TEST_F(BesideTest, EachCallThatNeedsAllUpdatesWaitsForThem) {
    using Call = void (*)(Client&);
    const std::pair<const char*, Call> calls[] = {
        {"settle", [](Client& client) { client.session().settle(); }},
        {"read", [](Client& client) { static_cast<void>(client.state()); }},
        {"clear", [](Client& client) { client.session().clear_gradients(); }},
        {"make",
         [](Client& client) {
             static_cast<void>(client.session().make_gradient({1, 0}));
         }},
        {"gradient",
         [](Client& client) {
             static_cast<void>(client.session().gradient({1, 0}));
         }},
        {"snapshot", [](Client& client) { client.session().begin_snapshot(client.directory() + "-kept"); }},
        {"norm", [](Client& client) { static_cast<void>(client.session().gradient_norm()); }},
        {"inference", [](Client& client) {
             client.session().begin_pass(Pass::inference);
             for (std::uint32_t unit = 5; unit-- > 0;) client.forward(unit);
             client.session().end_pass();
         }}};
    for (const auto& [name, call] : calls) {
        SCOPED_TRACE(name);
        std::filesystem::remove_all(path());
        std::filesystem::remove_all(path() + "-kept");
        PlainLoop plain(units());
        Setting deferred = setting(zero::UpdateWay::deferred);
        deferred.snapshots = true;
        Client client(path(), deferred);
        for (std::uint64_t step = 1; step <= 3; ++step) {
            backward_pass(client, plain, step);
            gate_->close();
            client.update(step);
            plain.update(step, 1);
            const OpensLater later(*gate_);
            call(client);
        }
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

TEST_F(BesideTest, ASessionMayEndWhileUnitsAreUpdated) {
    for (const zero::UpdateWay order : {zero::UpdateWay::within, zero::UpdateWay::deferred}) {
        std::filesystem::remove_all(path());
        PlainLoop plain(units());
        std::optional<OpensLater> later;  // than the end begins
        {
            Client client(path(), setting(order, {.commit_steps = 1}));
            if (order == zero::UpdateWay::within) client.session().begin_step({.values = {.step = 1}});
            client.session().begin_pass(Pass::training);
            gate_->close();
            for (std::uint32_t unit = 5; unit-- > 0;) {
                client.backward(unit, 1);
                if (order == zero::UpdateWay::within) client.session().complete(unit);
            }
            if (order == zero::UpdateWay::deferred) {
                client.session().end_pass();
                client.update(1);
            }
            later.emplace(*gate_);
        }
        Client client(path(), setting(order));
        EXPECT_EQ(client.steps(), 0U);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

TEST_F(BesideTest, WhatFailsThereIsThrownByTheNextCallAndWhatWasCommittedStays) {
    for (const bool in_update : {false, true}) {
        std::filesystem::remove_all(path());
        PlainLoop plain(units());
        {
            Client client(path(), setting(zero::UpdateWay::within, {.commit_steps = 1}));
            run(client, plain, {.step = 1});
            zero::CoreSession& session = client.session();
            session.begin_step({.values = {.step = 2, .learning_rate = 1e-2}});
            session.begin_pass(Pass::training);
            const std::string said = refusal_of(ExitCode::non_finite, [&] {
                client.backward(4, 2);
                session.complete(4);
                session.visit({{3}});
                const zero::GradientSums::Open sum = session.open_gradient({3, 0});
                auto* data = reinterpret_cast<float*>(sum.data);
                issue([=] { std::fill_n(data, sum.numel, std::numeric_limits<float>::infinity()); });
                session.complete(3);
                if (!in_update) session.visit({{3}});
                for (std::uint32_t unit = 3; unit-- > 0;) client.backward(unit, 2);
                session.end_pass();
                client.update(2);
            });
            EXPECT_EQ(said,
                      "the gradient of step 2 is not finite, first in unit 'fourth', parameter 'a'; the last committed "
                      "step is untouched");
            EXPECT_EQ(session.stage(), zero::CoreSession::Stage::failed);
        }
        Client client(path(), setting(zero::UpdateWay::within));
        EXPECT_EQ(client.steps(), 1U);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// Whatever compute waits for, or goes to, when a unit's new values are refused: it is told, and stands still for
// nothing.
TEST_F(BesideTest, AnUpdateThatFailsLeavesNobodyWaiting) {
    std::mt19937_64 random(5);
    for (int round = 0; round < 12; ++round) {
        std::filesystem::remove_all(path());
        PlainLoop plain(units());
        Setting deferred = setting(zero::UpdateWay::deferred, {.commit_steps = 1});
        deferred.device_budget = round % 2 == 0 ? tight_device_budget : 4 << 20;
        deferred.depth = 1 + static_cast<std::uint32_t>(random() % 4);
        {
            Client client(path(), deferred);
            backward_pass(client, plain, 1);
            client.update(1);
            plain.update(1, 1);
            PlainLoop left(units());
            backward_pass(client, left, 2);
            const std::string said = refusal_of(ExitCode::non_finite, [&] {
                client.session().update({.values = {.step = 2, .learning_rate = 1e38}}, no_state);
                client.session().begin_pass(Pass::training);
                for (;;) client.forward(static_cast<std::uint32_t>(random() % 5));
            });
            EXPECT_NE(said.find("step 2 makes unit"), std::string::npos) << said;
            EXPECT_EQ(client.session().stage(), zero::CoreSession::Stage::failed);
        }
        Client client(path(), deferred);
        EXPECT_EQ(client.steps(), 1U);
        EXPECT_TRUE(client.state() == plain.parameters());
    }
}

// Also whoever goes to units whose own updates were made.
TEST_F(BesideTest, AnUpdateThatFailsIsToldByTheNextCallWhateverItIs) {
    Setting deferred = setting(zero::UpdateWay::deferred);
    deferred.gate = nullptr;
    deferred.norm_group = true;  // of the last unit
    PlainLoop plain(units());
    Client client(path(), deferred);
    backward_pass(client, plain, 1);
    client.session().expect(Pass::training, {{{0}}, {{1}}, {{2}}, {{3}}, {{4}}});  // in which order they are updated
    const std::vector<zero::GroupValues> rates{
        {.learning_rate = 1e38, .optimizer = std::make_shared<GatedAdamW>(gate_)}, {.learning_rate = 1e-2}};
    gate_->close();
    const std::string said = refusal_of(ExitCode::non_finite, [&] {
        client.session().update({.values = {.step = 1, .learning_rate = 1e-2}, .groups = rates}, no_state);
        client.session().begin_pass(Pass::training);
        for (std::uint32_t unit = 0; unit < 4; ++unit) client.forward(unit);
        gate_->open();
        for (int visit = 0; visit < 1000; ++visit) {
            client.forward(static_cast<std::uint32_t>(visit % 4));
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    });
    EXPECT_NE(said.find("step 1 makes unit 'last', parameter 'norm' infinite or NaN"), std::string::npos) << said;
}

}  // namespace
}  // namespace penstock::testing
