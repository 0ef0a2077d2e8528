#include "zero_infinity/order/closing_order.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

namespace penstock::testing {
namespace {

using zero::ClosingOrder;
using zero::Visit;
using Units = std::vector<std::uint32_t>;

std::vector<Visit> visits(std::initializer_list<std::uint32_t> units) {
    std::vector<Visit> all;
    for (const std::uint32_t unit : units) all.push_back({{unit}});
    return all;
}

Units listed(std::span<const std::uint32_t> units) {
    return {units.begin(), units.end()};
}

// The turns' units.
Units behind(const ClosingOrder& order, const std::vector<Visit>& made) {
    Units units;
    for (const zero::ClosingTurn& turn : order.behind(made)) units.push_back(turn.unit);
    return units;
}

TEST(ClosingOrder, IsTheReverseOfFirstVisits) {
    const ClosingOrder order(std::vector<bool>(5, true));
    EXPECT_EQ(behind(order, visits({0, 1, 2, 3, 4, 4})), (Units{4, 3, 2, 1, 0}));
    EXPECT_EQ(behind(order, visits({2, 0, 2, 1})), (Units{1, 0, 2, 4, 3})) << "visited again; and what nobody visited";
    EXPECT_EQ(behind(order, {{{3, 1}}, {{0}}}), (Units{0, 1, 3, 4, 2}));
    EXPECT_EQ(behind(order, {}), (Units{4, 3, 2, 1, 0}));
}

TEST(ClosingOrder, AnAddendClosesWhatWasVisitedBehindItsUnit) {
    ClosingOrder order({true, true, false, true, true});
    EXPECT_FALSE(order.begun());
    order.begin(order.behind(visits({0, 1, 2, 3, 4})));
    EXPECT_TRUE(order.begun());
    EXPECT_EQ(listed(order.come_to(4)), Units{});
    EXPECT_EQ(listed(order.come_to(2)), (Units{4, 3})) << "3 got none";
    EXPECT_EQ(listed(order.come_to(3)), Units{}) << "late";
    EXPECT_EQ(listed(order.come_to(1)), Units{}) << "2 does not close";
    EXPECT_EQ(listed(order.come_to(0)), Units{1});
    EXPECT_EQ(listed(order.rest()), Units{0});
    EXPECT_EQ(listed(order.rest()), Units{});
    order.end();
    EXPECT_FALSE(order.begun());
    order.begin(order.behind({}));
    EXPECT_EQ(listed(order.come_to(1)), (Units{4, 3}));
    EXPECT_EQ(listed(order.rest()), (Units{1, 0}));
}

// Backward comes to it at its last visit first, when what lies between its visits is still to come.
TEST(ClosingOrder, AUnitThatWasVisitedAgainClosesWhatCameBehindItsLastVisit) {
    ClosingOrder order(std::vector<bool>(5, true));
    order.begin(order.behind(visits({0, 1, 2, 0, 3, 1, 4})));
    EXPECT_EQ(listed(order.come_to(1)), Units{4});
    EXPECT_EQ(listed(order.come_to(3)), Units{});
    EXPECT_EQ(listed(order.come_to(0)), Units{3});
    EXPECT_EQ(listed(order.come_to(2)), Units{});
    EXPECT_EQ(listed(order.rest()), (Units{2, 1, 0}));
}

}  // namespace
}  // namespace penstock::testing
