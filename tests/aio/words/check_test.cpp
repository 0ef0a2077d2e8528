#include "aio/words/check.h"

#include <gtest/gtest.h>

namespace penstock::aio {
namespace {

TEST(Check, PrintsPlaceConditionAndValuesAndAborts) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const int tile = 7;
    EXPECT_DEATH(PENSTOCK_CHECK(tile < 3, "tile {} of {}", tile, 3),
                 "check_test.cpp:[0-9]+: check failed: tile < 3: tile 7 of 3");
}

TEST(Check, DoesNotEvaluateItsDetailWhenTheConditionHolds) {
    int evaluated = 0;
    PENSTOCK_CHECK(true, "{}", ++evaluated);
    EXPECT_EQ(evaluated, 0);
}

}  // namespace
}  // namespace penstock::aio
