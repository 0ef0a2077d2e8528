#include "aio/words/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace penstock::aio {
namespace {

using std::chrono::nanoseconds;

nanoseconds only(std::int64_t ns) {
    LatencyHistogram histogram;
    histogram.add(nanoseconds(ns));
    return histogram.snapshot().quantile(0.5);
}

TEST(LatencyHistogram, IsEmptyAtFirst) {
    const LatencySnapshot snapshot = LatencyHistogram().snapshot();
    EXPECT_EQ(snapshot.count(), 0U);
    EXPECT_EQ(snapshot.quantile(0.99), nanoseconds(0));
    EXPECT_EQ(snapshot.mean(), nanoseconds(0));
    EXPECT_EQ(snapshot.max(), nanoseconds(0));
}

TEST(LatencyHistogram, AnswersTheUpperEdgeOfTheBucket) {
    EXPECT_EQ(only(-5), nanoseconds(1023));
    EXPECT_EQ(only(0), nanoseconds(1023));
    EXPECT_EQ(only(1023), nanoseconds(1023));
    EXPECT_EQ(only(1024), nanoseconds(1087));
    EXPECT_EQ(only(1087), nanoseconds(1087));
    EXPECT_EQ(only(1088), nanoseconds(1151));
    EXPECT_EQ(only(2047), nanoseconds(2047));
    EXPECT_EQ(only(2048), nanoseconds(2175));
    EXPECT_EQ(only((std::int64_t{1} << 42) - 1), nanoseconds((std::int64_t{1} << 42) - 1));
    EXPECT_EQ(only((std::int64_t{1} << 42) + 12345), nanoseconds((std::int64_t{1} << 42) + 12345));
    EXPECT_EQ(only(nanoseconds::max().count()), nanoseconds::max());
}

// Against sorted times: never below the truth, at most a sixteenth above it.
TEST(LatencyHistogram, GivesEveryQuantileWithinASixteenth) {
    std::mt19937_64 random(7);
    for (int round = 0; round < 20; ++round) {
        LatencyHistogram histogram;
        std::vector<std::int64_t> times;
        for (int i = 0; i < 2000; ++i) {
            const auto ns = static_cast<std::int64_t>(1024 + (random() >> (23 + random() % 30)));
            times.push_back(ns);
            histogram.add(nanoseconds(ns));
        }
        std::sort(times.begin(), times.end());
        const LatencySnapshot snapshot = histogram.snapshot();
        EXPECT_EQ(snapshot.count(), times.size());
        EXPECT_EQ(snapshot.max().count(), times.back());
        for (const double share : {0.0, 0.001, 0.25, 0.5, 0.99, 0.999, 1.0}) {
            const auto rank = std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(share * 2000)));
            const std::int64_t truth = times[rank - 1];
            EXPECT_GE(snapshot.quantile(share).count(), truth) << share;
            EXPECT_LE(static_cast<double>(snapshot.quantile(share).count()), static_cast<double>(truth) * 1.0625)
                << share;
        }
    }
}

TEST(LatencyHistogram, AddsAndSubtractsSnapshots) {
    LatencyHistogram first;
    LatencyHistogram second;
    first.add(nanoseconds(2000));
    const LatencySnapshot before = first.snapshot();
    first.add(nanoseconds(6000));
    second.add(nanoseconds(10000));
    LatencySnapshot sum = first.snapshot();
    sum += second.snapshot();
    EXPECT_EQ(sum.count(), 3U);
    EXPECT_EQ(sum.mean(), nanoseconds(6000));
    EXPECT_EQ(sum.max(), nanoseconds(10000));
    LatencySnapshot since = first.snapshot();
    since -= before;
    EXPECT_EQ(since.count(), 1U);
    EXPECT_EQ(since.mean(), nanoseconds(6000));
    EXPECT_EQ(since.quantile(1), only(6000));
    EXPECT_EQ(since.max(), nanoseconds(6000));
}

TEST(LatencyHistogram, IsReadableWhileItIsAddedTo) {
    LatencyHistogram histogram;
    std::atomic<bool> stop{false};
    std::thread reader([&] {
        std::uint64_t before = 0;
        while (!stop) {
            const LatencySnapshot snapshot = histogram.snapshot();
            EXPECT_GE(snapshot.count(), before);
            before = snapshot.count();
            // The bucket of a time is counted after the maximum has risen to it.
            if (before > 0) {
                EXPECT_LE(static_cast<double>(snapshot.quantile(1).count()),
                          static_cast<double>(snapshot.max().count()) * 1.0625);
            }
        }
    });
    for (std::int64_t i = 1; i <= 100'000; ++i) histogram.add(nanoseconds(1024 + i * 50));
    stop = true;
    reader.join();
    EXPECT_EQ(histogram.snapshot().count(), 100'000U);
}

TEST(LatencyHistogram, ChecksTheShare) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(static_cast<void>(LatencySnapshot().quantile(99)), "a share of 99");
}

}  // namespace
}  // namespace penstock::aio
