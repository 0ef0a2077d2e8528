#include "swap/format/striping.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/seeds.h"

namespace penstock::testing {
namespace {

using Shares = std::vector<std::uint16_t>;

Shares shares_of(std::vector<double> bandwidths) {
    return store::stripe_shares(bandwidths);
}

TEST(Striping, LikeDevicesTakeTurns) {
    EXPECT_EQ(shares_of({3.1}), Shares{1});
    EXPECT_EQ(shares_of({2.5, 2.5}), (Shares{1, 1}));
    EXPECT_EQ(shares_of({2.51, 2.5, 2.49}), (Shares{1, 1, 1}));  // as well as such rates can be measured
}

TEST(Striping, TilesAreInProportionToBandwidth) {
    EXPECT_EQ(shares_of({7, 3.5}), (Shares{2, 1}));
    EXPECT_EQ(shares_of({1, 3}), (Shares{1, 3}));
    EXPECT_EQ(shares_of({7, 7, 3.5}), (Shares{2, 2, 1}));
    EXPECT_EQ(shares_of({1, 1000}), (Shares{1, 63}));  // one tile of a round at least
}

TEST(Striping, TheSlowestDeviceIsNeverFarBehindTheIdeal) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(300); ++seed) {
        std::mt19937_64 random(seed);
        std::vector<double> bandwidths(random() % 6 + 1);
        for (double& bandwidth : bandwidths) bandwidth = 1 + static_cast<double>(random() % 700) / 100;
        const Shares shares = store::stripe_shares(bandwidths);
        const double round = std::accumulate(shares.begin(), shares.end(), 0.0);
        const double ideal = round / std::accumulate(bandwidths.begin(), bandwidths.end(), 0.0);
        double slowest = 0;
        for (std::size_t i = 0; i < shares.size(); ++i) slowest = std::max(slowest, shares[i] / bandwidths[i]);
        ASSERT_LT(slowest, ideal * 1.06) << replay(seed);
        ASSERT_LE(round, 64) << replay(seed);
    }
}

}  // namespace
}  // namespace penstock::testing
