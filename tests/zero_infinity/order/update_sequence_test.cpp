#include "zero_infinity/order/update_sequence.h"

#include "tests/zero_infinity/order/small_layout.h"
#include "zero_infinity/optimizer/optimizers.h"
#include "zero_infinity/optimizer/update.h"
#include "zero_infinity/plan/session_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace penstock::testing {
namespace {

using zero::Tier;

std::string deferred(const zero::ModelLayout& layout, double share) {
    std::string text;
    for (const bool each : zero::deferred_units(layout, share)) text += each ? 'd' : '.';
    return text;
}

TEST(UpdateSequence, DeferredUnitsAreSpreadEvenlyBetweenTheFirstAndTheLast) {
    const zero::ModelLayout layout = layout_of(std::vector<std::int64_t>(12, 8192));
    EXPECT_EQ(deferred(layout, 0), "............");
    EXPECT_EQ(deferred(layout, 0.2), "..d....d....");
    EXPECT_EQ(deferred(layout, 0.5), ".dd.d.d.d.d.");
    EXPECT_EQ(deferred(layout, 0.9), ".dddddddddd.");
    EXPECT_EQ(deferred(layout, 1), "dddddddddddd");
}

TEST(UpdateSequence, WhatIsResidentIsNeverDeferredAndWhatMovesNothingOnlyWithAll) {
    EXPECT_EQ(deferred(layout_of(std::vector<std::int64_t>(6, 8192), {0, 2, 5}), 0.9), "...d..");
    EXPECT_EQ(deferred(layout_of(std::vector<std::int64_t>(6, 8192), {0, 2, 5}), 1), ".d.dd.");
    const zero::UnitResidency host{Tier::host, zero::UnitResidency::all_tiles}, nvme;
    const zero::ModelLayout layout =
        layout_of(std::vector<std::int64_t>(6, 8192), {}, {nvme, host, nvme, host, nvme, nvme});
    EXPECT_EQ(deferred(layout, 0.5), "..d.d.");
    EXPECT_EQ(deferred(layout, 1), "dddddd");
    EXPECT_EQ(deferred(layout_of({8192}), 0.5), ".");
    EXPECT_EQ(deferred(layout_of({8192}), 1), "d");
}

// To half of the largest unit at any place, and the ends.
TEST(UpdateSequence, DeferredBytesAreAboutTheShareOfAllUpToEachPlace) {
    std::mt19937_64 random(3);
    for (int turn = 0; turn < 500; ++turn) {
        std::vector<std::int64_t> numels(3 + random() % 20);
        for (std::int64_t& each : numels) each = 4096 * static_cast<std::int64_t>(1 + random() % 8);
        const zero::ModelLayout layout = layout_of(numels);
        const double share = static_cast<double>(random() % 100) / 100;
        const std::vector<bool> found = zero::deferred_units(layout, share);
        EXPECT_EQ(found, zero::deferred_units(layout, share));
        double all = 0, of_them = 0;
        const double largest = static_cast<double>(*std::max_element(numels.begin(), numels.end()));
        EXPECT_FALSE(found.front() || found.back());
        for (std::size_t unit = 0; unit + 1 < numels.size(); ++unit) {
            all += static_cast<double>(numels[unit]);
            if (found[unit]) of_them += static_cast<double>(numels[unit]);
            EXPECT_LE(of_them, share * all + largest / 2 + 1e-6);
            EXPECT_GE(of_them, share * all - share * static_cast<double>(numels.front()) - largest / 2 - 1e-6);
        }
    }
}

TEST(UpdateSequence, ThoseOfAListAreInItsOrder) {
    EXPECT_EQ(zero::those_of({3, 1, 0, 2}, {true, false, true, false}, true), (std::vector<std::uint32_t>{0, 2}));
    EXPECT_EQ(zero::those_of({3, 1, 0, 2}, {true, false, true, false}, false), (std::vector<std::uint32_t>{3, 1}));
}

}  // namespace
}  // namespace penstock::testing
