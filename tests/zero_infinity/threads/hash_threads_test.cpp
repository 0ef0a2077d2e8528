#include "zero_infinity/threads/hash_threads.h"

#include <gtest/gtest.h>

#include <limits>

namespace penstock::zero {
namespace {

constexpr double drive = 0.7 * driver_bytes_per_second;

TEST(HashThreads, ADeviceThatOneThreadKeepsUpWithNeedsNone) {
    EXPECT_EQ(hash_threads({.bytes_per_second = drive, .cores = 64, .compute_threads = 1}), 0U);
    EXPECT_EQ(hash_threads({.bytes_per_second = driver_bytes_per_second, .cores = 64, .compute_threads = 1}), 0U);
    EXPECT_EQ(hash_threads({.cores = 64, .compute_threads = 1}), 0U);  // nobody knows
    EXPECT_EQ(hash_threads({.bytes_per_second = std::numeric_limits<double>::quiet_NaN(), .cores = 64}), 0U);
}

TEST(HashThreads, AnArrayGetsAsManyAsKeepUpWithIt) {
    EXPECT_EQ(hash_threads({.bytes_per_second = 2 * drive, .cores = 64, .compute_threads = 32}), 2U);
    EXPECT_EQ(hash_threads({.bytes_per_second = 4 * drive, .cores = 64, .compute_threads = 32}), 3U);
    EXPECT_EQ(hash_threads({.bytes_per_second = 8 * drive, .cores = 64, .compute_threads = 32}), 6U);
}

TEST(HashThreads, TakeNoCoreOfComputeOrOfTheDriver) {
    const auto with_cores = [](unsigned cores, unsigned compute) {
        return hash_threads({.bytes_per_second = 4 * drive, .cores = cores, .compute_threads = compute});
    };
    EXPECT_EQ(with_cores(16, 16), 0U);
    EXPECT_EQ(with_cores(16, 15), 0U);
    EXPECT_EQ(with_cores(16, 14), 1U);
    EXPECT_EQ(with_cores(16, 12), 3U);
    EXPECT_EQ(with_cores(16, 1), 3U);
    EXPECT_EQ(with_cores(2, 4), 0U);
    EXPECT_EQ(hash_threads({.bytes_per_second = std::numeric_limits<double>::infinity(), .cores = 8}), 6U);
}

}  // namespace
}  // namespace penstock::zero
