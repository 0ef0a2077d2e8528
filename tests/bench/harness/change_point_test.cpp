#include "bench/harness/change_point.h"

#include <gtest/gtest.h>

namespace penstock::bench {
namespace {

// Samples of half a second at these rates in GB/s.
std::vector<RateSample> course(const std::vector<double>& rates) {
    std::vector<RateSample> samples;
    for (const double rate : rates)
        samples.push_back({.seconds = 0.5, .bytes = static_cast<std::uint64_t>(rate * 0.5e9)});
    return samples;
}

std::vector<RateSample> levels(std::size_t first, double high, std::size_t second, double low) {
    std::vector<double> rates;
    for (std::size_t i = 0; i < first; ++i) rates.push_back(high * (i % 2 == 0 ? 1.05 : 0.95));
    for (std::size_t i = 0; i < second; ++i) rates.push_back(low * (i % 2 == 0 ? 1.05 : 0.95));
    return course(rates);
}

TEST(ChangePoint, FindsWhereTheRateFell) {
    EXPECT_EQ(find_fall(levels(10, 4.0, 10, 1.0)), 10U);
    EXPECT_EQ(find_fall(levels(5, 4.0, 40, 2.5)), 5U);
    EXPECT_EQ(find_fall(levels(40, 4.0, 5, 1.0)), 40U);
}

TEST(ChangePoint, SteadyRatesHaveNone) {
    EXPECT_EQ(find_fall(levels(20, 4.0, 0, 0)), std::nullopt);
    EXPECT_EQ(find_fall(course(std::vector<double>(20, 3.0))), std::nullopt);
    EXPECT_EQ(find_fall(course({4, 2, 4.4, 2.2, 4.1, 2, 3.9, 2.1, 4, 2, 4.4, 2.2, 4.1, 2})), std::nullopt);
}

TEST(ChangePoint, ARateThatRisesHasNone) {
    EXPECT_EQ(find_fall(levels(10, 1.0, 10, 4.0)), std::nullopt);
}

TEST(ChangePoint, ASmallFallIsNone) {
    EXPECT_EQ(find_fall(levels(10, 4.0, 10, 3.4)), std::nullopt);
    EXPECT_EQ(find_fall(levels(10, 4.0, 10, 3.0)), 10U);
}

TEST(ChangePoint, AShortDipIsNone) {
    EXPECT_EQ(find_fall(course({4, 4, 4, 4, 4, 4, 1, 1, 4, 4, 4, 4, 4, 4})), std::nullopt);
    EXPECT_EQ(find_fall(course({4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1, 1})), std::nullopt);
}

TEST(ChangePoint, TooFewSamplesHaveNone) {
    EXPECT_EQ(find_fall({}), std::nullopt);
    EXPECT_EQ(find_fall(course({4, 4, 4, 1, 1, 1, 1})), std::nullopt);
    EXPECT_EQ(find_fall(course({4, 4, 4, 4, 1, 1, 1, 1})), 4U);
}

TEST(ChangePoint, SamplesOfUnequalLengthCountByTheirRate) {
    std::vector<RateSample> samples = levels(10, 4.0, 0, 0);
    for (RateSample& sample : samples) {
        sample.seconds *= 3;
        sample.bytes *= 3;
    }
    const std::vector<RateSample> more = levels(10, 4.0, 0, 0);
    samples.insert(samples.end(), more.begin(), more.end());
    EXPECT_EQ(find_fall(samples), std::nullopt);
}

TEST(SustainedRate, IsThatOfTheOverwritingWhenNothingFell) {
    const SustainedRate rate = sustained_rate(levels(20, 3.0, 0, 0), levels(20, 8.0, 0, 0));
    EXPECT_NEAR(rate.bytes_per_second, 8e9, 1e3);
    EXPECT_EQ(rate.cache_bytes, std::nullopt);
}

TEST(SustainedRate, CacheThatRanOutInTheFirstPassIsKnownFromIt) {
    const SustainedRate rate = sustained_rate(levels(10, 4.0, 10, 1.0), levels(20, 1.2, 0, 0));
    EXPECT_NEAR(rate.bytes_per_second, 1.2e9, 1e3);
    EXPECT_EQ(rate.cache_bytes, 20'000'000'000U);
}

TEST(SustainedRate, CacheThatRanOutInTheSecondPassCountsTheFirst) {
    const SustainedRate rate = sustained_rate(levels(10, 4.0, 0, 0), levels(10, 4.0, 10, 1.0));
    EXPECT_NEAR(rate.bytes_per_second, 1e9, 1e3);
    EXPECT_EQ(rate.cache_bytes, 40'000'000'000U);
}

}  // namespace
}  // namespace penstock::bench
