// Which graphs are given up, and when; what becomes of the memory of one that is, and of compute where there is none.
#include "zero_infinity/engine/graph_keeper.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/engine/run.h"
#include "zero_infinity/engine/room/compute_room.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <memory>

namespace penstock::testing {
namespace {

using Runs = std::vector<int>;

constexpr auto unlimited = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t large = 8 << 20;

// What the units of a model have seen of each other.
struct Seen {
    Runs runs;
    std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> saved;  // for backward, by each run
    std::vector<int> saved_at_last;                                // those that were there when the last unit began
};

enum class Taste : std::uint8_t { plain, greedy, impossible, impossible_in_backward };

// Counts how often it is run, and knows whether what it left to its graph is still there.
class Watched final : public engine::Unit {
   public:
    Watched(std::size_t index, Seen& seen, Taste taste)
        : engine::Unit("unit." + std::to_string(index)),
          index_(index),
          seen_(seen),
          taste_(taste),
          weight_(declare("weight", {64, 64}, engine::Initial::normal(0.1))) {}

    engine::Bundle forward(const engine::Bundle& input) const override {
        ++seen_.runs[index_];
        if (index_ + 1 == seen_.runs.size())
            for (const auto& storage : seen_.saved) seen_.saved_at_last.push_back(storage.expired() ? 0 : 1);
        const at::Tensor inner = at::linear(input.at("hidden"), weight_.tensor());
        seen_.saved.emplace_back(
            c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(inner.storage().unsafeGetStorageImpl()));
        if (taste_ == Taste::greedy) at::empty({static_cast<std::int64_t>(large)}, at::kByte);
        if (taste_ == Taste::impossible) at::empty({std::int64_t{1} << 50}, at::kByte);
        const at::Tensor hidden = at::gelu(inner);
        if (taste_ == Taste::impossible_in_backward && hidden.requires_grad())
            hidden.register_hook([](const at::Tensor&) { at::empty({std::int64_t{1} << 50}, at::kByte); });
        return {{"hidden", hidden}, {"loss", hidden.to(at::kFloat).pow(2).mean()}};
    }

   private:
    std::size_t index_;
    Seen& seen_;
    Taste taste_;
    const engine::Parameter& weight_;
};

class GraphKeeperTest : public ::testing::Test {
   protected:
    static constexpr std::size_t units = 6;

    engine::Session& open() {
        std::vector<std::unique_ptr<engine::Unit>> all;
        for (std::size_t unit = 0; unit < units; ++unit)
            all.push_back(std::make_unique<Watched>(unit, seen_, unit == odd_ ? taste_ : Taste::plain));
        session_.emplace(std::make_unique<engine::Model>(std::move(all)), options_.optimizers(), options_.session,
                         store::ClientState{}, engine::SessionEvents{});
        return *session_;
    }
    engine::StepReport step(std::uint64_t number, std::size_t micro_batches = 1) {
        seen_ = {.runs = Runs(units), .saved = {}, .saved_at_last = {}};
        const std::vector<engine::Bundle> batch(micro_batches, {{"hidden", at::ones({16, 64}, at::kBFloat16)}});
        return session_->engine().train_batch(batch, {.step = number, .learning_rate = 1e-3},
                                              [](const engine::StepReport&) { return store::ClientState{}; });
    }
    // Says `room` at the asks of this number, from 0, of a step; else there is enough.
    void short_at(std::vector<std::size_t> asks, std::uint64_t room = 0) {
        options_.session.engine.room = [this, asks, room](std::uint64_t reserve) {
            reserves_.push_back(reserve);
            const bool is_short = std::find(asks.begin(), asks.end(), reserves_.size() - 1) != asks.end();
            return is_short ? room : unlimited;
        };
    }

    TemporaryDirectory directory_;
    RunOptions options_ = toy_run(directory_.path());
    std::vector<std::uint64_t> reserves_;  // that room was asked for
    Seen seen_;
    std::size_t odd_ = 3;  // the unit with another taste
    Taste taste_ = Taste::plain;
    std::optional<engine::Session> session_;
};

TEST_F(GraphKeeperTest, NothingRunsTwiceWhereThereIsRoom) {
    short_at({});
    open();
    for (const std::uint64_t number : {1, 2}) {
        const engine::StepReport report = step(number);
        EXPECT_EQ(seen_.runs, Runs(units, 1));
        EXPECT_EQ(report.given_up, 0U);
        EXPECT_GT(report.graph_bytes, 0U);
    }
    EXPECT_TRUE(session_->take_notes().empty());
    EXPECT_EQ(reserves_.size(), 2 * (2 * units - 1)) << "before each call";
}

// This machine has room for it.
TEST_F(GraphKeeperTest, IsWhatASessionDoesThatIsToldNothing) {
    ASSERT_EQ(engine::EngineOptions{}.activations, engine::Activations::automatic);
    open();
    step(1);
    EXPECT_EQ(seen_.runs, Runs(units, 1));
}

TEST_F(GraphKeeperTest, TheOldestIsGivenUpAndItsMemoryIsFree) {
    short_at({4});  // before unit 4: one graph goes, then there is enough
    open();
    const engine::StepReport report = step(1);
    EXPECT_EQ(report.given_up, 1U);
    EXPECT_EQ(seen_.runs, (Runs{2, 1, 1, 1, 1, 1}));
    EXPECT_EQ(seen_.saved_at_last, (std::vector<int>{0, 1, 1, 1, 1}));
}

// Whatever room says, a unit that is running ends as it began, and compute goes on.
TEST_F(GraphKeeperTest, WhereNothingIsLeftToGiveUpComputeGoesOn) {
    options_.session.engine.room = [](std::uint64_t) { return std::uint64_t{0}; };
    open();
    for (const std::uint64_t number : {1, 2}) {
        const engine::StepReport report = step(number, 2);
        EXPECT_EQ(seen_.runs, (Runs{4, 4, 4, 4, 4, 2}));
        EXPECT_EQ(report.given_up, 2 * (units - 1));
        EXPECT_EQ(report.graph_bytes, session_->counters().activation_peak_bytes - report.activation_bytes);
    }
}

// In backward the graph that is used next is not given up for its own use.
TEST_F(GraphKeeperTest, TheCallThatIsAboutToUseItsGraphKeepsIt) {
    short_at({units, units + 1, units + 2, units + 3, units + 4, units + 5, units + 6});  // backward of unit 4, and on
    open();
    step(1);
    EXPECT_EQ(seen_.runs, (Runs{2, 2, 2, 2, 1, 1}));
}

TEST_F(GraphKeeperTest, TheReserveIsTheMostThatOneCallTook) {
    taste_ = Taste::greedy;
    short_at({});
    open();
    step(1);
    EXPECT_LT(reserves_[odd_], large) << "nothing is foretold";
    EXPECT_GE(reserves_[odd_ + 1], large);
    EXPECT_LT(reserves_[odd_ + 1], large + (1 << 20));
    EXPECT_TRUE(std::is_sorted(reserves_.begin(), reserves_.end()));
    EXPECT_GE(reserves_.back(), large);
}

// Any of them may take far more than those before it.
TEST_F(GraphKeeperTest, AUnitThatHasNotRunYetFindsEightTimesTheRoomThatGraphsHave) {
    short_at({});
    open();
    const std::uint64_t whole = step(1).graph_bytes;
    EXPECT_EQ(reserves_[units - 1], 8 * whole) << "the last unit's";
    EXPECT_LT(reserves_[1], 8 * whole);
    step(2);
    EXPECT_EQ(reserves_[2 * units - 1], reserves_.back()) << "the most that any took";
}

TEST_F(GraphKeeperTest, ABudgetIsTheLimitInstead) {
    options_.session.engine.room = [](std::uint64_t) -> std::uint64_t {
        ADD_FAILURE() << "nobody asks";
        return 0;
    };
    options_.session.engine.graph_budget_bytes = 12000;
    open();
    for (const std::uint64_t number : {1, 2}) {
        const engine::StepReport report = step(number);
        EXPECT_LE(report.graph_bytes, 12000U);
        EXPECT_GT(report.graph_bytes, 0U);
        EXPECT_EQ(seen_.runs[0], 2);
        EXPECT_EQ(seen_.runs[4], 1) << "those nearest to the loss";
        EXPECT_TRUE(std::is_sorted(seen_.runs.rbegin(), seen_.runs.rend()));
    }
    const std::vector<std::string> notes = session_->take_notes();
    ASSERT_EQ(notes.size(), 1U) << "said once";
    EXPECT_NE(notes[0].find("of 5 calls of units were given up"), std::string::npos) << notes[0];
    EXPECT_NE(notes[0].find("a budget of"), std::string::npos) << notes[0];
}

TEST_F(GraphKeeperTest, AGraphThatAloneIsMoreThanTheBudgetCostsNoOther) {
    options_.session.engine.graph_budget_bytes = 1;
    open();
    EXPECT_EQ(step(1).given_up, units - 1);
    EXPECT_EQ(step(2).graph_bytes, 0U);
}

TEST_F(GraphKeeperTest, WhatIsGivenUpIsSaidOfTheFirstPassAndOfOneAfterIt) {
    std::size_t asked = 0, shortages = 0;
    options_.session.engine.room = [&](std::uint64_t) {
        const bool is_short = ++asked > units - 2 && shortages > 0;
        if (is_short) --shortages;
        return is_short ? 0 : unlimited;
    };
    open();
    const std::vector<std::size_t> short_of = {2, 1, 1, 0, 3};
    const std::vector<std::string> expected = {"2", "1", "", "", ""};
    for (std::size_t number = 1; number <= expected.size(); ++number) {
        asked = 0;
        shortages = short_of[number - 1];
        EXPECT_EQ(step(number).given_up, short_of[number - 1]);
        const std::vector<std::string> notes = session_->take_notes();
        ASSERT_EQ(notes.size(), expected[number - 1].empty() ? 0U : 1U) << number;
        if (notes.empty()) continue;
        EXPECT_NE(notes[0].find("graphs of " + expected[number - 1] + " of 5 calls of units were given up"),
                  std::string::npos)
            << notes[0];
        EXPECT_NE(notes[0].find("0.0 MiB were free"), std::string::npos) << notes[0];
    }
}

// ---------------------------------------------------------------- no memory at all

TEST_F(GraphKeeperTest, WhereTorchFindsNoMemoryTheErrorSaysWhatTakesIt) {
    for (const Taste taste : {Taste::impossible, Taste::impossible_in_backward}) {
        for (const auto activations : {engine::Activations::automatic, engine::Activations::retain}) {
            taste_ = taste;
            options_.session.engine.activations = activations;
            options_.session.names.host_budget = "memory.host_budget";
            options_.session.engine.activations_setting = "memory.activations";
            open();
            const std::string said = refusal_of(ExitCode::out_of_memory, [&] { step(1); });
            session_.reset();
            for (const char* part : {"out of memory on the host while unit 'unit.3' ran", "staging", "inputs of units",
                                     "graphs that are kept", "fewer rows", "a lower memory.host_budget"})
                EXPECT_NE(said.find(part), std::string::npos) << part << " is missing in: " << said;
            EXPECT_EQ(said.find("memory.activations \"auto\"") != std::string::npos,
                      activations == engine::Activations::retain)
                << said;
        }
    }
}

TEST_F(GraphKeeperTest, WhereTorchFindsNoMemoryForInferenceTheErrorSaysSoToo) {
    taste_ = Taste::impossible;
    seen_.runs = Runs(units);
    engine::Session& session = open();
    const std::string said = refusal_of(ExitCode::out_of_memory, [&] {
        session.engine().infer({{"hidden", at::ones({16, 64}, at::kBFloat16)}});
    });
    EXPECT_NE(said.find("while unit 'unit.3' ran"), std::string::npos) << said;
}

// ---------------------------------------------------------------- room

TEST(LastingRoom, IsLookedAtAgainWhereItRunsShort) {
    int looks = 0;
    std::uint64_t there = 100;
    engine::LastingRoom room([&](std::uint64_t) {
        ++looks;
        const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
        while (std::chrono::steady_clock::now() < until) {  // so that the answer is good for five seconds
        }
        return there;
    });
    EXPECT_EQ(room(40), 100U);
    there = 30;
    EXPECT_EQ(room(40), 60U);
    EXPECT_EQ(looks, 1);
    EXPECT_EQ(room(40), 30U) << "20 were left for it";
    EXPECT_EQ(looks, 2);
    EXPECT_EQ(room(40), 30U);
    EXPECT_EQ(looks, 3);
}

TEST(LastingRoom, IsLookedAtAgainWhenItIsOld) {
    std::uint64_t there = 100;
    engine::LastingRoom room([&](std::uint64_t) { return there; });
    EXPECT_EQ(room(1), 100U);
    there = 7;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < until) {
    }
    EXPECT_EQ(room(1), 7U);
}

double resident_megabytes() {
    std::uint64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return static_cast<double>(resident) * 4096 / 1e6;
}

TEST(MachineRoom, FreePagesOfTheHeapAreGivenBackWhereItIsShortAndOnlyThere) {
    std::vector<std::unique_ptr<std::byte[]>> blocks;
    for (int i = 0; i < 2000; ++i) blocks.push_back(std::make_unique<std::byte[]>(50'000));
    for (std::size_t i = 0; i < blocks.size(); i += 2) blocks[i].reset();
    const double before = resident_megabytes();
    const engine::Room room = engine::machine_room(at::kCPU);
    EXPECT_GT(room(0), 1U << 20);
    EXPECT_LT(room(0), std::uint64_t{1} << 50);
    EXPECT_GT(resident_megabytes(), before - 10);
    room(std::uint64_t{1} << 50);
    EXPECT_LT(resident_megabytes(), before - 30);
}

}  // namespace
}  // namespace penstock::testing
