#include "zero_infinity/plan/placement.h"

#include "pinned_pool/pinned_pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace penstock::zero {
namespace {

using Random = std::mt19937_64;

std::uint64_t draw(Random& random, std::uint64_t least, std::uint64_t most) {
    return least + random() % (most - least + 1);
}

std::vector<Stay> random_stays(Random& random, std::size_t most_count, std::uint64_t most_bytes) {
    std::vector<Stay> stays(draw(random, 0, most_count));
    for (Stay& stay : stays) {
        stay.first = static_cast<std::uint32_t>(draw(random, 0, 12));
        stay.last = stay.first + static_cast<std::uint32_t>(draw(random, 0, 5));
        stay.bytes = draw(random, 1, most_bytes);
    }
    return stays;
}

bool meet(const Stay& a, const Stay& b) {
    return a.first <= b.last && b.first <= a.last;
}

TEST(Placement, StaysThatMeetShareNoByte) {
    const unsigned seed = 1;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    for (int run = 0; run < 3000; ++run) {
        const auto stays = random_stays(random, 30, 20 * pool::granule_bytes);
        const Placement placement = place(stays);
        std::uint64_t top = 0;
        for (std::size_t a = 0; a < stays.size(); ++a) {
            const std::uint64_t begin = placement.offsets_bytes[a];
            ASSERT_EQ(begin % pool::granule_bytes, 0U);
            top = std::max(top, begin + stays[a].bytes);
            for (std::size_t b = 0; b < a; ++b) {
                const std::uint64_t other = placement.offsets_bytes[b];
                const bool apart = begin + stays[a].bytes <= other || other + stays[b].bytes <= begin;
                ASSERT_TRUE(apart || !meet(stays[a], stays[b])) << "run " << run << ": stays " << b << " and " << a;
            }
        }
        ASSERT_LE(top, placement.window_bytes);
        ASSERT_LT(placement.window_bytes, top + pool::granule_bytes);
        ASSERT_GE(placement.window_bytes, floor_bytes(stays));
    }
}

TEST(Placement, TheFloorIsTheMostThatLivesAtOneMoment) {
    Random random(2);
    for (int run = 0; run < 1000; ++run) {
        const auto stays = random_stays(random, 20, 5 * pool::granule_bytes);
        std::uint64_t most = 0;
        for (std::uint32_t moment = 0; moment < 20; ++moment) {
            std::uint64_t granules = 0;
            for (const Stay& stay : stays) {
                if (stay.first <= moment && moment <= stay.last)
                    granules += (stay.bytes + pool::granule_bytes - 1) / pool::granule_bytes;
            }
            most = std::max(most, granules * pool::granule_bytes);
        }
        ASSERT_EQ(floor_bytes(stays), most) << "run " << run;
    }
}

TEST(Placement, AStayThatEndsAsAnotherBeginsStillNeedsItsBytes) {
    EXPECT_EQ(place(std::vector<Stay>{{0, 3, 1}, {3, 5, 1}}).window_bytes, 2 * pool::granule_bytes);
    EXPECT_EQ(place(std::vector<Stay>{{0, 3, 1}, {4, 5, 1}}).window_bytes, pool::granule_bytes);
}

TEST(Placement, NothingNeedsNothing) {
    EXPECT_EQ(place({}).window_bytes, 0U);
    EXPECT_EQ(floor_bytes({}), 0U);
}

// Equal stays are an interval graph's colouring, where the first order alone is optimal.
TEST(Placement, EqualStaysReachTheFloor) {
    Random random(3);
    for (int run = 0; run < 1000; ++run) {
        auto stays = random_stays(random, 40, 1);
        std::sort(stays.begin(), stays.end(), [](const Stay& a, const Stay& b) { return a.first < b.first; });
        ASSERT_EQ(place(stays).window_bytes, floor_bytes(stays)) << "run " << run;
    }
}

// The optimum, written apart from the product: some order of the stays gives it by lowest gap (take an optimal
// placement and the order of its offsets), so all orders are tried. One granule per byte of `stays`.
std::uint64_t optimal_granules(const std::vector<Stay>& stays) {
    std::vector<std::size_t> order(stays.size());
    std::iota(order.begin(), order.end(), 0U);
    std::uint64_t best = ~0ULL;
    do {
        std::vector<std::uint64_t> at(stays.size());
        std::uint64_t top = 0;
        for (std::size_t i = 0; i < order.size(); ++i) {
            const Stay& stay = stays[order[i]];
            std::uint64_t offset = 0;
            for (std::size_t j = 0; j < i;) {  // lift over whatever is in the way, until nothing is
                const Stay& other = stays[order[j]];
                const std::uint64_t end = at[order[j]] + other.bytes;
                const bool in_the_way = meet(stay, other) && at[order[j]] < offset + stay.bytes && offset < end;
                offset = in_the_way ? end : offset;
                j = in_the_way ? 0 : j + 1;
            }
            at[order[i]] = offset;
            top = std::max(top, offset + stay.bytes);
        }
        best = std::min(best, top);
    } while (std::next_permutation(order.begin(), order.end()));
    return best;
}

TEST(Placement, SmallCasesAreMostlyOptimal) {
    const unsigned seed = 4;
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Random random(seed);
    constexpr int runs = 400;
    int optimal = 0;
    double worst = 1;
    for (int run = 0; run < runs; ++run) {
        std::vector<Stay> stays(7);
        for (Stay& stay : stays) {
            stay.first = static_cast<std::uint32_t>(draw(random, 0, 5));
            stay.last = stay.first + static_cast<std::uint32_t>(draw(random, 0, 3));
            stay.bytes = draw(random, 1, 9);
        }
        const std::uint64_t best = optimal_granules(stays);
        for (Stay& stay : stays) stay.bytes *= pool::granule_bytes;
        const std::uint64_t found = place(stays).window_bytes / pool::granule_bytes;
        ASSERT_GE(found, best) << "run " << run;
        optimal += found == best ? 1 : 0;
        worst = std::max(worst, static_cast<double>(found) / static_cast<double>(best));
    }
    fmt::print("optimal in {} of {} small cases, worst {:.3f} of the optimum\n", optimal, runs, worst);
    EXPECT_GE(optimal, runs * 97 / 100);
    EXPECT_LE(worst, 1.2);
}

TEST(Placement, IsTheSameEveryTime) {
    Random random(5);
    for (int run = 0; run < 100; ++run) {
        const auto stays = random_stays(random, 30, 20 * pool::granule_bytes);
        ASSERT_EQ(place(stays).offsets_bytes, place(stays).offsets_bytes);
    }
}

TEST(PlacementDeathTest, RefusesAStayThatEndsBeforeItBegins) {
    EXPECT_DEATH(place(std::vector<Stay>{{3, 2, 1}}), "from 3 to 2");
}

}  // namespace
}  // namespace penstock::zero
