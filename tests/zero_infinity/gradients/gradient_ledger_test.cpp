#include "zero_infinity/gradients/gradient_ledger.h"

#include "tests/zero_infinity/gradients/tied_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::GradientLedger;
using State = GradientLedger::State;

constexpr std::array states{State::open, State::counted, State::lent, State::lent_within, State::updated_within};

class GradientLedgerTest : public ::testing::Test {
   protected:
    void count_all() {
        for (std::uint32_t unit = 0; unit < layout_.unit_count(); ++unit) ledger_.count(unit);
    }
    // The table's state; the other units are open.
    void reach(State state) {
        ledger_ = GradientLedger(layout_);
        switch (state) {
            case State::open:
                break;
            case State::counted:
                ledger_.count(table);
                break;
            case State::lent:
                count_all();
                ledger_.lend_all();
                ledger_.give_back(head);
                break;
            case State::updated_within:
            case State::lent_within:
                ledger_.lend_within(table);
                if (state == State::updated_within) ledger_.give_back(table);
        }
        ASSERT_EQ(ledger_.state(table), state);
    }

    const zero::ModelLayout layout_ = tied_layout();
    GradientLedger ledger_{layout_};
};
using GradientLedgerDeathTest = GradientLedgerTest;

// What a call makes of a state, or the words of the check that refuses it.
struct Move {
    State to = State::open;
    const char* refused = nullptr;
};
struct Row {
    const char* call;
    std::function<void(GradientLedger&)> make;
    std::array<Move, states.size()> moves;  // of `states`
};

constexpr Move open{State::open}, counted{State::counted}, lent{State::lent}, within{State::lent_within},
    updated{State::updated_within};
constexpr Move all_came{{}, "which was said to have all of them"}, owed{{}, "it is to be visited before"},
    no_norm{{}, "before their norm"}, worked_with{{}, "an update works with"}, twice{{}, "unit 0 is lent twice"},
    not_lent{{}, "gradients of unit 0, which are not lent"}, not_back{{}, "was not given back"},
    back{{}, "given back twice"};

void add_borrowed(GradientLedger& ledger) {
    ledger.add(borrowed_weight);
    ledger.hand_on(borrowed_weight);
}

void lend_all(GradientLedger& ledger) {
    ledger.count(fixed);
    ledger.count(head);
    ledger.lend_all();
}

const std::vector<Row>& rows() {
    using L = GradientLedger;
    static const std::vector<Row> all{
        {"expect", [](L& l) { l.expect(table_weight); }, {open, counted, owed, all_came, all_came}},
        {"add", [](L& l) { l.add(table_weight); }, {open, open, owed, all_came, all_came}},
        {"hand_on", add_borrowed, {open, open, owed, all_came, all_came}},
        {"clear", [](L& l) { l.clear(); }, {open, open, lent, within, updated}},
        {"clear one", [](L& l) { l.clear(table_weight); }, {open, open, lent, all_came, all_came}},
        {"count", [](L& l) { l.count(table); }, {counted, counted, worked_with, worked_with, worked_with}},
        {"lend_all", lend_all, {no_norm, lent, no_norm, twice, updated}},
        {"lend_within", [](L& l) { l.lend_within(table); }, {within, within, twice, twice, twice}},
        {"give_back", [](L& l) { l.give_back(table); }, {open, counted, open, updated, back}},
        {"lend_again", [](L& l) { l.lend_again(table); }, {not_back, not_back, not_back, not_back, within}},
        {"end_step", [](L& l) { l.end_step(); }, {open, counted, lent, lent, open}},
        {"expect_lent", [](L& l) { l.expect_lent(table); }, {not_lent, not_lent, lent, within, not_lent}}};
    return all;
}

TEST_F(GradientLedgerTest, MovesAUnitAsItsTableSays) {
    for (const Row& row : rows())
        for (std::size_t at = 0; at < states.size(); ++at) {
            if (row.moves[at].refused != nullptr) continue;
            reach(states[at]);
            row.make(ledger_);
            EXPECT_EQ(ledger_.state(table), row.moves[at].to) << row.call << " in state " << at;
        }
}

TEST_F(GradientLedgerDeathTest, RefusesWhatItsTableDoesNotAllow) {
    for (const Row& row : rows())
        for (std::size_t at = 0; at < states.size(); ++at) {
            if (row.moves[at].refused == nullptr) continue;
            reach(states[at]);
            EXPECT_DEATH(row.make(ledger_), row.moves[at].refused) << row.call << " in state " << at;
        }
}

TEST_F(GradientLedgerDeathTest, AUnitWithoutTilesIsCountedAndNeverLent) {
    count_all();
    ledger_.lend_all();
    EXPECT_EQ(ledger_.state(fixed), State::open);
    ledger_.give_back(fixed);
    EXPECT_EQ(ledger_.state(fixed), State::open);
    EXPECT_DEATH(ledger_.lend_within(fixed), "unit 1 is lent twice, or has nothing to lend");
    EXPECT_DEATH(ledger_.add(fixed_scale), "unit 1: parameter 0 is frozen and has no gradient");
}

TEST_F(GradientLedgerDeathTest, AnAddendToOneUnitAsksForANewNorm) {
    count_all();
    ledger_.add(head_weight);
    EXPECT_EQ(ledger_.state(table), State::counted);
    EXPECT_DEATH(ledger_.lend_all(), "before their norm");
}

TEST_F(GradientLedgerTest, TellsTheFirstAddendFromThoseThatFollow) {
    EXPECT_FALSE(ledger_.has(table_weight));
    EXPECT_TRUE(ledger_.add(table_weight));
    EXPECT_FALSE(ledger_.add(table_weight));
    EXPECT_TRUE(ledger_.has(table_weight));
    EXPECT_TRUE(ledger_.has_any(table));
    EXPECT_FALSE(ledger_.has_any(head));
    EXPECT_TRUE(ledger_.clear(table_weight));
    EXPECT_FALSE(ledger_.clear(table_weight));
    EXPECT_TRUE(ledger_.add(table_weight));
}

TEST_F(GradientLedgerTest, WhatIsBorrowedGoesToItsOwner) {
    EXPECT_FALSE(ledger_.first_borrowed());
    ledger_.add(borrowed_weight);
    EXPECT_TRUE(ledger_.has_any(head));
    EXPECT_FALSE(ledger_.first_borrowed(head));
    const auto found = ledger_.first_borrowed(table);
    ASSERT_TRUE(found && ledger_.first_borrowed());
    EXPECT_EQ(found->unit, head);
    EXPECT_EQ(found->index, 1U);
    EXPECT_EQ(ledger_.owner_of(*found).unit, table);
    EXPECT_TRUE(ledger_.hand_on(*found)) << "nothing came to the owner itself";
    EXPECT_TRUE(ledger_.has(table_weight));
    EXPECT_FALSE(ledger_.has(borrowed_weight) || ledger_.first_borrowed());
    ledger_.add(borrowed_weight);
    EXPECT_FALSE(ledger_.hand_on(borrowed_weight));
}

TEST_F(GradientLedgerTest, AStepsEndForgetsWhatWasUpdatedWithinIt) {
    for (const zero::ParameterId each : {table_weight, head_weight, borrowed_weight}) ledger_.add(each);
    ledger_.lend_within(head);
    EXPECT_TRUE(ledger_.has(head_weight)) << "which the update asks for";
    ledger_.give_back(head);
    ledger_.end_step();
    EXPECT_FALSE(ledger_.has(head_weight));
    EXPECT_TRUE(ledger_.has(table_weight) && ledger_.has(borrowed_weight)) << "which another unit is to have";
}

TEST_F(GradientLedgerTest, ALentStepBeginsTheNextOneWithNothing) {
    for (const zero::ParameterId each : {table_weight, head_weight}) ledger_.add(each);
    count_all();
    ledger_.lend_all();
    EXPECT_FALSE(ledger_.has(table_weight) || ledger_.has(head_weight));
}

TEST_F(GradientLedgerTest, NamesWhatIsMissing) {
    EXPECT_EQ(ledger_.first_missing(), "unit 'table', parameters 'weight'");
    EXPECT_EQ(ledger_.missing(head), "unit 'head', parameters 'weight'");
    EXPECT_EQ(ledger_.missing(fixed), std::nullopt);
    ledger_.lend_within(table);
    EXPECT_EQ(ledger_.first_missing(), "unit 'head', parameters 'weight'") << "a unit that was lent is not asked for";
    EXPECT_EQ(ledger_.missing(table), "unit 'table', parameters 'weight'");
    ledger_.add(head_weight);
    EXPECT_EQ(ledger_.first_missing(), std::nullopt);
}

}  // namespace
}  // namespace penstock::testing
