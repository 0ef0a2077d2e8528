#include "bench/io/tune_choice.h"

#include <gtest/gtest.h>

namespace penstock::bench {
namespace {

constexpr std::uint32_t kib = 1U << 10;
constexpr std::uint32_t mib = 1U << 20;

TEST(TuneChoice, TakesTheSmallestInFlightWithinThreePercentOfTheBest) {
    const TuneChoice choice = choose_point(
        {{mib, 1 * mib, 2.0, 3.0}, {mib, 4 * mib, 3.90, 7.0}, {mib, 8 * mib, 3.95, 7.9}, {mib, 32 * mib, 4.0, 8.0}});
    EXPECT_EQ(choice.block_bytes, mib);
    EXPECT_EQ(choice.read_in_flight_bytes, 4 * mib);
    EXPECT_EQ(choice.write_in_flight_bytes, 8 * mib);
    EXPECT_EQ(choice.read_rate, 3.90);
    EXPECT_EQ(choice.write_rate, 7.9);
}

TEST(TuneChoice, DoesNotDependOnTheOrderOfPoints) {
    const TuneChoice choice = choose_point(
        {{mib, 32 * mib, 4.0, 8.0}, {mib, 8 * mib, 3.95, 7.9}, {mib, 4 * mib, 3.90, 7.0}, {mib, mib, 2.0, 3.0}});
    EXPECT_EQ(choice.read_in_flight_bytes, 4 * mib);
    EXPECT_EQ(choice.write_in_flight_bytes, 8 * mib);
}

TEST(TuneChoice, JustBelowThreePercentIsNotEnough) {
    const TuneChoice choice = choose_point({{mib, 4 * mib, 3.87, 1}, {mib, 8 * mib, 4.0, 1}});
    EXPECT_EQ(choice.read_in_flight_bytes, 8 * mib);
    EXPECT_EQ(choice.write_in_flight_bytes, 4 * mib);
}

TEST(TuneChoice, TakesTheBlockThatNeedsTheFewestBytesInFlightForBoth) {
    const TuneChoice choice = choose_point({{256 * kib, 8 * mib, 4.0, 8.0},
                                            {mib, 4 * mib, 4.0, 8.0},
                                            {4 * mib, 4 * mib, 3.0, 8.0},
                                            {4 * mib, 16 * mib, 4.0, 8.0}});
    EXPECT_EQ(choice.block_bytes, mib);
    EXPECT_EQ(choice.read_in_flight_bytes, 4 * mib);
}

TEST(TuneChoice, OfEqualsTheSmallestBlockIsTaken) {
    EXPECT_EQ(choose_point({{4 * mib, 8 * mib, 4, 4}, {mib, 8 * mib, 4, 4}, {2 * mib, 8 * mib, 4, 4}}).block_bytes,
              mib);
}

TEST(TuneChoice, ABlockThatIsGoodForOneDirectionOnlyIsPassedOver) {
    const TuneChoice choice = choose_point({{256 * kib, mib, 4.0, 2.0}, {mib, 8 * mib, 3.9, 8.0}});
    EXPECT_EQ(choice.block_bytes, mib);
}

TEST(TuneChoice, WhereNoBlockIsGoodForBothTheWorseHalfDecides) {
    const TuneChoice choice = choose_point({{256 * kib, mib, 4.0, 2.0},      // writes at 0.25 of the best
                                            {mib, 4 * mib, 3.0, 6.9},        // reads at 0.75
                                            {mib, 8 * mib, 3.05, 7.0},       // and a little more
                                            {4 * mib, 8 * mib, 2.0, 8.0}});  // reads at 0.5
    EXPECT_EQ(choice.block_bytes, mib);
    EXPECT_EQ(choice.read_in_flight_bytes, 4 * mib);  // within 3 % of that block's own best
    EXPECT_EQ(choice.write_in_flight_bytes, 4 * mib);
}

TEST(TuneChoice, OnePointIsItsOwnChoice) {
    const TuneChoice choice = choose_point({{mib, 2 * mib, 1, 1}});
    EXPECT_EQ(choice.block_bytes, mib);
    EXPECT_EQ(choice.write_in_flight_bytes, 2 * mib);
    EXPECT_DEATH(choose_point({}), "no points");
}

}  // namespace
}  // namespace penstock::bench
