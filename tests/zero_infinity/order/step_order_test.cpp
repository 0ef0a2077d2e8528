#include "zero_infinity/order/step_order.h"

#include "tests/zero_infinity/order/small_layout.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace penstock::testing {
namespace {

using zero::BegunUpdate;
using zero::Departure;
using zero::Ended;
using zero::UpdateOrder;
using Units = std::vector<std::uint32_t>;

// Writes down what it is told, and checks that it may be: of each unit it knows of which step it is.
class Notes final : public zero::StepHands {
   public:
    explicit Notes(std::size_t units) : step_of(units, 0) {}

    std::span<const zero::Visit> expected() const override { return visits; }
    void begin(const BegunUpdate& update) override {
        EXPECT_FALSE(commit_under_way) << "tiles would be overwritten that the commit still names";
        EXPECT_TRUE(left.empty()) << "the update before is not made";
        EXPECT_EQ(update.again.empty(), undone.empty());
        left = update.units;
        if (update.of != BegunUpdate::Of::rest) ++step;
        say("begin", update.units);
        if (update.commits) text += "! ";
    }
    void update(std::uint32_t unit) override {
        EXPECT_EQ(std::erase(left, unit), 1U) << unit;
        EXPECT_LT(step_of[unit], step) << unit << " is updated twice";
        step_of[unit] = step;
        say("u", {unit});
    }
    void end_of_residents() override { text += "residents "; }
    void end_of_step() override {
        EXPECT_TRUE(left.empty());
        text += "end ";
    }
    void begin_commit() override {
        EXPECT_FALSE(commit_under_way);
        EXPECT_TRUE(left.empty()) << "a commit of half a step";
        commit_under_way = true;
        text += "commit ";
    }
    void finish_commit() override {
        EXPECT_TRUE(commit_under_way);
        commit_under_way = false;
        undone.clear();
        committed = step;
        text += "committed ";
    }
    void finish_writes() override { text += "written "; }
    void undo(const Units& units) override {
        EXPECT_EQ(committed + 1, step) << "what was before is not to be had any more";
        for (const std::uint32_t unit : units) step_of[unit] = committed;
        undone = units;
        say("undo", units);
    }
    std::string take() { return std::exchange(text, ""); }

    std::vector<zero::Visit> visits;
    std::vector<std::uint64_t> step_of;  // by unit
    std::uint64_t step = 0, committed = 0;
    bool commit_under_way = false;
    Units left, undone;

   private:
    void say(const std::string& what, const Units& units) { text += fmt::format("{}{} ", what, fmt::join(units, ",")); }
    std::string text;
};

const zero::StepRules speculative{.order = UpdateOrder::within, .undoes = true, .defers_others = true};
const zero::StepRules balanced{
    .order = UpdateOrder::within, .deferred = {false, true, false, false}, .undoes = true, .defers_others = true};

// A step of forward and backward over units 0 to n - 1: the last one is visited once.
struct Scene {
    Scene(std::size_t count, zero::StepRules rules, const Units& resident = {})
        : layout(layout_of(std::vector<std::int64_t>(count, 4096), resident)), notes(count), all(count, true) {
        order.emplace(layout, std::move(rules), notes);
        for (std::uint32_t unit = 0; unit < count; ++unit) notes.visits.push_back({{unit}});
        for (std::uint32_t unit = static_cast<std::uint32_t>(count) - 1; unit-- > 0;) notes.visits.push_back({{unit}});
    }
    // What is told for each visit, set apart by bars.
    std::string pass() {
        std::string told;
        for (std::size_t i = 0; i < notes.visits.size(); ++i) {
            const std::uint32_t unit = notes.visits[i].units.front();
            order->arrive(notes.visits[i].units);
            EXPECT_FALSE(order->owes(unit)) << "compute would read old weights";
            if (i + 1 >= all.size() && order->begun()) order->depart(unit);
            told += notes.take() + "|";
        }
        return told;
    }
    std::string end(bool commits = true) {
        order->finish();
        if (order->end(commits, all) == Ended::whole) order->finish();
        return notes.take();
    }

    zero::ModelLayout layout;
    Notes notes;
    std::optional<zero::StepOrder> order;
    std::vector<bool> all;
};

TEST(StepOrder, AfterBackwardUpdatesWhatIsResidentAndThenAll) {
    Scene scene(3, {}, {1});
    EXPECT_EQ(scene.pass(), "|||||");
    EXPECT_EQ(scene.end(), "written begin1,0,2 ! u1 residents u0 u2 end commit committed ");
    EXPECT_TRUE(scene.order->committed());
    EXPECT_EQ(scene.end(false), "written begin1,0,2 u1 residents u0 u2 end written ");
    EXPECT_FALSE(scene.order->committed());
    scene.order->commit();
    EXPECT_EQ(scene.notes.take(), "commit committed ");
    EXPECT_TRUE(scene.order->committed());
    scene.order->changed();
    EXPECT_FALSE(scene.order->committed());
}

TEST(StepOrder, WhatStaysAsItIsIsNotUpdatedUnlessNothingElseIs) {
    Scene scene(3, {});
    scene.all = {true, false, true};
    EXPECT_EQ(scene.end(), "written begin0,2 ! u0 u2 end commit committed ");
    scene.all = {false, false, false};
    EXPECT_EQ(scene.end(), "written begin0,1,2 ! u0 u1 u2 end commit committed ");
}

TEST(StepOrder, DeferredUnitsAreUpdatedWhereTheyAreVisitedAndTheLastOneCommits) {
    Scene scene(3, {.order = UpdateOrder::deferred}, {1});
    EXPECT_EQ(scene.end(), "written begin1,0,2 ! u1 residents ");
    EXPECT_TRUE(scene.order->owes(0) && scene.order->owes(2) && !scene.order->owes(1));
    EXPECT_EQ(scene.pass(), "u0 ||u2 end commit |||");
    EXPECT_TRUE(scene.order->committing() && !scene.order->committed());
    scene.order->finish();
    EXPECT_EQ(scene.notes.take(), "committed ");
    EXPECT_EQ(scene.end(), "written begin1,0,2 ! u1 residents ");
    scene.order->arrive(Units{2});
    scene.order->finish();
    EXPECT_EQ(scene.notes.take(), "u2 u0 end commit committed ") << "finish() does not wait for a visit";
}

TEST(StepOrder, WithinBackwardUnitsAreUpdatedAsTheyDepartAndTheRestAtTheEnd) {
    Scene scene(4, {.order = UpdateOrder::within}, {0});
    EXPECT_TRUE(scene.order->may_begin(false));
    EXPECT_FALSE(scene.order->may_begin(true));
    EXPECT_EQ(scene.order->depart(3), Departure::left) << "no step is begun";
    scene.order->begin(true);
    EXPECT_EQ(scene.notes.take(), "begin3,2,1,0 ! ");
    EXPECT_EQ(scene.pass(), "|||u3 |u2 |u1 ||");
    EXPECT_EQ(scene.order->depart(0), Departure::kept);
    scene.order->finish();
    EXPECT_EQ(scene.notes.take(), "") << "not all of its gradients are there";
    EXPECT_TRUE(scene.order->committed()) << "the step before";
    EXPECT_EQ(scene.order->end_begun(false), Ended::whole);
    EXPECT_FALSE(scene.order->begun() || scene.order->committed());
    scene.order->finish();
    EXPECT_EQ(scene.notes.take(), "u0 residents end commit committed ");
}

TEST(StepOrder, OfABalancedStepTheDeferredUnitsAreCommittedBeforeTheNextIsUpdated) {
    Scene scene(4, balanced);
    scene.order->begin(true);
    EXPECT_EQ(scene.pass(), "begin3,2,0 ! |||u3 |u2 ||u0 |");
    EXPECT_EQ(scene.order->end_begun(false), Ended::deferred);
    EXPECT_EQ(scene.notes.take(), "residents begin1 ! ");
    scene.order->begin(true);
    EXPECT_EQ(scene.pass(), "|u1 end commit ||committed begin3,2,0 ! u3 |u2 ||u0 |")
        << "once the first to depart comes";
}

TEST(StepOrder, ACommitThatIsUnderWayIsNotWaitedForBeforeTheFirstToDepartComes) {
    Scene scene(4, balanced);
    scene.order->begin(false);
    scene.pass();
    scene.order->end_begun(false);
    EXPECT_EQ(scene.notes.take(), "residents begin1 ") << "of a step that does not commit";
    scene.order->finish();
    scene.order->begin(true);
    scene.pass();
    scene.order->end_begun(false);
    scene.order->arrive(Units{1});
    scene.notes.take();
    scene.order->begin(true);
    scene.order->arrive(Units{2});
    EXPECT_EQ(scene.notes.take(), "");
    scene.order->arrive(Units{3});
    EXPECT_EQ(scene.notes.take(), "committed begin3,2,0 ! ") << "its tiles come while it computes";
}

TEST(StepOrder, AStepIsNotUpdatedWithinAPassThatLeavesUnitsOfTheOneBefore) {
    Scene scene(4, balanced);
    scene.order->begin(true);
    scene.pass();
    scene.order->end_begun(false);
    scene.order->begin(true);
    scene.notes.visits = {{{0}}, {{2}}, {{3}}, {{2}}, {{0}}};
    scene.notes.take();
    EXPECT_EQ(scene.pass(), "|||||");
    EXPECT_EQ(scene.order->depart(3), Departure::left);
    EXPECT_FALSE(scene.order->updates_within());
    scene.order->finish();
    EXPECT_EQ(scene.notes.take(), "u1 end commit committed ");
    scene.order->drop_idle();
    EXPECT_EQ(scene.order->end(true, scene.all), Ended::deferred) << "as a whole";
    EXPECT_EQ(scene.notes.take(), "begin0,2,3,1 ! ");
}

TEST(StepOrder, AStepThatIsClippedAfterAllIsUndoneAndUpdatedAgainInTheNextPass) {
    Scene scene(3, speculative);
    EXPECT_TRUE(scene.order->may_begin(true));
    scene.order->begin(true);
    EXPECT_EQ(scene.pass(), "begin2,1,0 ! ||u2 |u1 |u0 |");
    EXPECT_EQ(scene.order->end_begun(true), Ended::again);
    EXPECT_EQ(scene.notes.take(), "residents written undo2,1,0 begin0,1,2 ! ");
    EXPECT_TRUE(scene.order->may_begin(true)) << "it will be committed when this one's units are updated";
    scene.order->begin(true);
    EXPECT_EQ(scene.pass(), "u0 |u1 |u2 end commit committed begin2,1,0 ! u2 |u1 |u0 |");
    EXPECT_EQ(scene.order->end_begun(false), Ended::whole);
}

TEST(StepOrder, WhatMayHaveToBeUndoneIsNotBegunWhereTheStepBeforeIsNotCommitted) {
    Scene scene(3, speculative);
    scene.end(false);
    scene.order->finish();
    EXPECT_FALSE(scene.order->may_begin(true));
    scene.order->commit();
    EXPECT_TRUE(scene.order->may_begin(true));
    scene.order->changed();
    EXPECT_FALSE(scene.order->may_begin(true));
    EXPECT_FALSE(Scene(3, {.order = UpdateOrder::within, .defers_others = true}).order->may_begin(true));
    EXPECT_FALSE(Scene(3, {.order = UpdateOrder::deferred, .undoes = true}).order->may_begin(true));
    EXPECT_TRUE(Scene(3, speculative).order->may_begin(true));
}

TEST(StepOrder, InARunOfClipsItIsNotWorthIt) {
    Scene scene(3, speculative);
    const zero::StepOrder& order = *scene.order;
    EXPECT_FALSE(order.is_worth_beginning(true)) << "a training begins as if in one";
    EXPECT_TRUE(order.may_begin(true) && order.is_worth_beginning(false));
    scene.order->note_clip(false);
    EXPECT_TRUE(order.is_worth_beginning(true));
    scene.order->note_clip(true);
    EXPECT_TRUE(order.is_worth_beginning(true)) << "one says little";
    scene.order->note_clip(true);
    scene.order->note_clip(true);
    EXPECT_FALSE(order.is_worth_beginning(true));
    scene.order->note_clip(false);
    EXPECT_TRUE(order.is_worth_beginning(true));
    scene.order->changed();
    EXPECT_FALSE(order.is_worth_beginning(true)) << "it may not be begun";
}

TEST(StepOrder, AStepIsBegunOnceAndEndsAsItWasBegun) {
    Scene scene(2, {.order = UpdateOrder::within});
    scene.order->begin(true);
    EXPECT_DEATH(scene.order->begin(true), "begun within another one");
    EXPECT_DEATH(scene.order->end(true, scene.all), "as if it had not been begun");
    scene.order->end_begun(false);
    EXPECT_DEATH(scene.order->end_begun(false), "as if its units had been updated");
}

// Of models, orders and calls from a seed, also passes that leave units out. Notes checks what it is told; here is
// checked that compute never reads old weights, and that every step is made of all units.
class RandomSteps {
   public:
    explicit RandomSteps(std::uint64_t seed) : random_(seed) {
        const std::size_t count = 2 + draw(6);
        zero::StepRules rules{.order = static_cast<UpdateOrder>(draw(3)), .undoes = draw(2) == 0};
        rules.defers_others = rules.order == UpdateOrder::within && draw(2) == 0;
        rules.deferred.resize(count);
        Units resident;
        for (std::uint32_t unit = 0; unit < count; ++unit) {
            if (draw(5) == 0)
                resident.push_back(unit);
            else
                rules.deferred[unit] = rules.defers_others && draw(2) == 0;
        }
        commits_all_ = rules.undoes;
        scene_.emplace(count, rules, resident);
    }

    void make(int steps) {
        for (int step = 1; step <= steps; ++step) make_step();
        scene_->order->finish();
        for (const std::uint64_t each : scene_->notes.step_of) EXPECT_EQ(each, scene_->notes.step);
        EXPECT_TRUE(scene_->notes.left.empty() && !scene_->notes.commit_under_way);
    }

   private:
    std::size_t draw(std::size_t below) { return std::uniform_int_distribution<std::size_t>(0, below - 1)(random_); }

    void make_step() {
        zero::StepOrder& order = *scene_->order;
        const bool commits = commits_all_ || draw(2) == 0, clips = draw(2) == 0;
        if (draw(3) == 0) order.finish();
        if (draw(5) == 0) visit_all(false);
        if (draw(6) != 0 && order.may_begin(clips)) order.begin(commits);
        visit_all(true);
        order.finish();
        order.drop_idle();
        const std::uint64_t before = scene_->notes.step;
        const Ended ended = order.begun() ? order.end_begun(clips && draw(2) == 0) : order.end(commits, scene_->all);
        EXPECT_LE(scene_->notes.step, before + 1);
        if (ended == Ended::whole) order.finish();
        EXPECT_EQ(ended == Ended::whole && commits, order.committed());
    }

    // Forward and backward, some units left out; in the last pass of a step units depart.
    void visit_all(bool last) {
        const std::size_t count = scene_->all.size();
        Units forward;
        for (std::uint32_t unit = 0; unit < count; ++unit)
            if (draw(8) != 0) forward.push_back(unit);
        for (const std::uint32_t unit : forward) arrive(unit);
        for (auto unit = forward.rbegin(); unit != forward.rend(); ++unit) {
            arrive(*unit);
            if (last && scene_->order->begun() && draw(8) != 0) scene_->order->depart(*unit);
        }
    }

    void arrive(std::uint32_t unit) {
        scene_->order->arrive(Units{unit});
        const bool departs = scene_->order->updates_within();
        EXPECT_GE(scene_->notes.step_of[unit] + (departs ? 1 : 0), scene_->notes.step) << "compute reads old weights";
    }

    std::mt19937_64 random_;
    bool commits_all_ = false;
    std::optional<Scene> scene_;
};

TEST(StepOrder, HoldsWhatItPromisesOverAnyOrdersModelsAndCalls) {
    for (std::uint64_t seed = 1; seed <= 2000 && !HasFailure(); ++seed) {
        SCOPED_TRACE(seed);
        RandomSteps(seed).make(12);
    }
}

}  // namespace
}  // namespace penstock::testing
