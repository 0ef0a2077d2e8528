#include "zero_infinity/order/visit_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <vector>

namespace penstock::testing {
namespace {

using zero::Pass;
using zero::Visit;
using zero::VisitOrder;

std::vector<Visit> visits(std::initializer_list<std::uint32_t> units) {
    std::vector<Visit> all;
    for (const std::uint32_t unit : units) all.push_back({{unit}});
    return all;
}

std::vector<std::uint32_t> ahead(const VisitOrder& order) {
    std::vector<std::uint32_t> units;
    for (const Visit& visit : order.ahead()) units.push_back(visit.units.at(0));
    return units;
}
using Units = std::vector<std::uint32_t>;

// Makes the pass; how many of its visits were the ones that were expected next.
std::uint64_t make(VisitOrder& order, Pass pass, const std::vector<Visit>& all) {
    const std::uint64_t before = order.counts().expected;
    order.begin(pass);
    for (const Visit& visit : all) order.visit(visit);
    order.end();
    return order.counts().expected - before;
}

TEST(VisitOrder, TheFirstPassTellsTheNextOneOfItsKind) {
    VisitOrder order;
    const auto training = visits({0, 1, 2, 1, 0});
    EXPECT_EQ(make(order, Pass::training, training), 0U);
    EXPECT_EQ(make(order, Pass::training, training), 5U);
    EXPECT_EQ(make(order, Pass::inference, visits({0, 1, 2})), 0U) << "another kind";
    EXPECT_EQ(make(order, Pass::training, training), 5U);
    EXPECT_EQ(make(order, Pass::inference, visits({0, 1, 2})), 3U);
}

TEST(VisitOrder, AClientThatKnowsItsOrderSaysIt) {
    VisitOrder order;
    order.expect(Pass::training, visits({0, 1, 2, 1, 0}));
    EXPECT_EQ(ahead(order), Units{}) << "no pass has begun";
    order.begin(Pass::training);
    EXPECT_EQ(ahead(order), (Units{0, 1, 2, 1, 0}));
    order.visit({{0}});
    EXPECT_EQ(ahead(order), (Units{1, 2, 1, 0}));
    order.expect(Pass::training, visits({5, 0}));
    EXPECT_EQ(ahead(order), (Units{5, 0})) << "from here on";
    order.visit({{5}});
    order.visit({{0}});
    order.end();
    order.begin(Pass::training);
    EXPECT_EQ(ahead(order), (Units{0, 5, 0})) << "the whole pass, not its tail";
}

TEST(VisitOrder, SkippedVisitsAreSkipped) {
    VisitOrder order;
    order.expect(Pass::inference, visits({0, 1, 2, 3, 4}));
    order.begin(Pass::inference);
    order.visit({{0}});
    order.visit({{3}});
    EXPECT_EQ(ahead(order), Units{4});
    order.visit({{4}});
    order.end();
    order.begin(Pass::inference);
    EXPECT_EQ(ahead(order), (Units{0, 3, 4})) << "the last pass is what the next is expected to be";
}

TEST(VisitOrder, VisitsPutInBetweenDoNotLoseWhatComes) {
    VisitOrder order;
    order.expect(Pass::training, visits({0, 1, 2, 3, 2, 1, 0}));
    order.begin(Pass::training);
    order.visit({{0}});
    order.visit({{1}});
    order.visit({{9}});  // is met nowhere
    EXPECT_EQ(ahead(order), (Units{2, 3, 2, 1, 0}));
    order.visit({{1}});  // again: met on the way back, too
    order.visit({{2}});
    EXPECT_EQ(ahead(order), (Units{3, 2, 1, 0}));
}

TEST(VisitOrder, APassOverSomeUnitsOnceMoreIsFollowed) {
    VisitOrder order;
    order.expect(Pass::inference, visits({7, 0, 1, 2, 0, 1, 2}));
    order.begin(Pass::inference);
    for (const Visit& visit : visits({7, 0, 1, 2, 0, 1, 2})) order.visit(visit);
    EXPECT_EQ(ahead(order), Units{});
    order.visit({{0}});  // a token more
    EXPECT_EQ(ahead(order).front(), 1U);
    order.visit({{1}});
    EXPECT_EQ(ahead(order).front(), 2U);
}

TEST(VisitOrder, APassThatEndsEarlyIsNoReasonToExpectLess) {
    VisitOrder order;
    const auto training = visits({0, 1, 2, 1, 0});
    order.expect(Pass::training, training);
    make(order, Pass::training, visits({0, 1}));
    EXPECT_EQ(make(order, Pass::training, training), 5U);
    order.begin(Pass::training);  // the one before it was not ended
    order.visit({{0}});
    EXPECT_EQ(make(order, Pass::training, training), 5U);
}

TEST(VisitOrder, VisitsThatNeverComeAgainDoNotPileUp) {
    VisitOrder order;
    for (std::uint32_t pass = 0; pass < 100; ++pass)
        make(order, Pass::inference, visits({0, 1000 + pass, 2000 + pass}));
    order.begin(Pass::inference);
    EXPECT_EQ(order.ahead().size(), 3U);
}

TEST(VisitOrder, AVisitThatWasTakenBackWasNotMade) {
    VisitOrder order;
    order.expect(Pass::inference, visits({0, 1, 2}));
    order.begin(Pass::inference);
    order.visit({{0}});
    for (const std::uint32_t unit : {1U, 2U, 9U}) {
        order.visit({{unit}});
        order.take_back();
        EXPECT_EQ(ahead(order), (Units{1, 2}));
    }
    order.visit({{1}});
    EXPECT_EQ(order.counts().visits, 2U);
    EXPECT_EQ(order.counts().expected, 2U);
}

// Layers that are left out at random: no more than they, and those after them, are missed.
TEST(VisitOrder, RandomlySkippedLayersAreMetAgain) {
    std::mt19937_64 random(6);
    VisitOrder order;
    std::uint64_t made = 0;
    for (int pass = 0; pass < 200; ++pass) {
        std::vector<Visit> all;
        for (std::uint32_t unit = 0; unit < 24; ++unit)
            if (random() % 10 != 0) all.push_back({{unit}});
        for (std::size_t unit = all.size() - 1; unit-- > 0;) all.push_back(Visit(all[unit]));
        make(order, Pass::training, all);
        made += all.size();
    }
    EXPECT_GT(static_cast<double>(order.counts().expected), 0.75 * static_cast<double>(made));
    EXPECT_EQ(order.counts().visits, made);
}

}  // namespace
}  // namespace penstock::testing
