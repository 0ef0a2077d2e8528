#include "swap/format/striping.h"

#include "aio/words/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace penstock::store {
namespace {

constexpr std::uint32_t usual_round_tiles = 64;

// Time that the slowest device takes for a round, per tile.
double slowest(const std::vector<std::uint16_t>& shares, std::span<const double> bandwidths) {
    double longest = 0;
    for (std::size_t i = 0; i < shares.size(); ++i) longest = std::max(longest, shares[i] / bandwidths[i]);
    return longest / std::accumulate(shares.begin(), shares.end(), 0U);
}

// One tile each, then every further one to the device that is done with it first.
std::vector<std::uint16_t> shares_of_round(std::uint32_t tiles, std::span<const double> bandwidths) {
    std::vector<std::uint16_t> shares(bandwidths.size(), 1);
    for (auto given = static_cast<std::uint32_t>(bandwidths.size()); given < tiles; ++given) {
        std::size_t soonest = 0;
        for (std::size_t i = 1; i < shares.size(); ++i) {
            if ((shares[i] + 1) / bandwidths[i] < (shares[soonest] + 1) / bandwidths[soonest]) soonest = i;
        }
        ++shares[soonest];
    }
    return shares;
}

}  // namespace

std::vector<std::uint16_t> stripe_shares(std::span<const double> bandwidths) {
    PENSTOCK_CHECK(!bandwidths.empty() && bandwidths.size() <= max_device_count, "{} devices", bandwidths.size());
    for (const double bandwidth : bandwidths)
        PENSTOCK_CHECK(std::isfinite(bandwidth) && bandwidth > 0, "a bandwidth of {}", bandwidth);
    const auto least = static_cast<std::uint32_t>(bandwidths.size());
    std::vector<std::uint16_t> best = shares_of_round(least, bandwidths);
    for (std::uint32_t tiles = least + 1; tiles <= std::max(least, usual_round_tiles); ++tiles) {
        std::vector<std::uint16_t> shares = shares_of_round(tiles, bandwidths);
        // Measured rates are not better than to a per cent: like devices take turns.
        if (slowest(shares, bandwidths) < slowest(best, bandwidths) * 0.99) best = std::move(shares);
    }
    return best;
}

}  // namespace penstock::store
