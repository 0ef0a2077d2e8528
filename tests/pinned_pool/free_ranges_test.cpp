#include "pinned_pool/free_ranges.h"

#include "pinned_pool/budget.h"
#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>
#include <vector>

namespace penstock::pool {
namespace {

constexpr std::size_t g = granule_bytes;

TEST(FreeRanges, TakesTheFirstRangeThatIsLongEnough) {
    FreeRanges free(10 * g);
    EXPECT_EQ(free.take(2 * g), 0U);
    EXPECT_EQ(free.take(g), 2 * g);
    EXPECT_EQ(free.take(3 * g), 3 * g);
    EXPECT_EQ(free.take(4 * g), 6 * g);
    EXPECT_FALSE(free.fits(g));
    free.give_back(0, 2 * g);
    free.give_back(3 * g, 3 * g);
    EXPECT_EQ(free.longest(), 3 * g);
    EXPECT_FALSE(free.fits(4 * g));
    EXPECT_EQ(free.take(3 * g), 3 * g);
    EXPECT_EQ(free.take(g), 0U);
    free.give_back(2 * g, g);
    EXPECT_EQ(free.take(2 * g), g);
}

TEST(FreeRanges, MergesWithTheNeighbourBeforeBehindAndOnBothSides) {
    for (const auto& order :
         std::vector<std::vector<std::size_t>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
        FreeRanges free(6 * g);
        for (int i = 0; i < 3; ++i) free.take(2 * g);
        for (const std::size_t piece : order) free.give_back(piece * 2 * g, 2 * g);
        EXPECT_EQ(free.longest(), 6 * g);
        EXPECT_EQ(free.take(6 * g), 0U);
    }
}

TEST(FreeRanges, ChecksThatNothingComesBackTwice) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    FreeRanges free(4 * g);
    free.take(4 * g);
    free.give_back(g, g);
    EXPECT_DEATH(free.give_back(g, g), "bytes 4096 to 8192 of 16384 come back but are free");
    EXPECT_DEATH(free.give_back(0, 2 * g), "come back but are free");
    EXPECT_DEATH(free.give_back(3 * g, 2 * g), "come back but are free");
    EXPECT_DEATH(free.take(4 * g), "16384 bytes do not fit");
}

TEST(FreeRanges, AreNoneOfNoBytes) {
    const FreeRanges free(0);
    EXPECT_FALSE(free.fits(g));
    EXPECT_EQ(free.longest(), 0U);
}

// Against a model that knows the owner of every granule: nothing overlaps, first fit is first, nothing is lost.
TEST(FreeRanges, AgreeWithAModelOnRandomTraces) {
    const std::uint64_t first = first_seed();
    std::printf("seeds from %llu\n", static_cast<unsigned long long>(first));
    for (std::uint64_t seed = first; seed < first + seed_count(200); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        const std::size_t granules = 1 + random() % 100;
        std::vector<bool> taken(granules, false);
        struct Held {
            std::size_t begin, count;
        };
        std::vector<Held> held;
        FreeRanges free(granules * g);
        for (int step = 0; step < 300; ++step) {
            if (held.empty() || random() % 2 == 0) {
                const std::size_t count = 1 + random() % (1 + granules / 4);
                std::size_t expected = 0;
                std::size_t run = 0;
                while (expected + run < granules && run < count) {
                    if (taken[expected + run]) {
                        expected += run + 1;
                        run = 0;
                    } else {
                        ++run;
                    }
                }
                ASSERT_EQ(free.fits(count * g), run == count);
                if (run < count) continue;
                free.reserve(held.size() + 1);
                ASSERT_EQ(free.take(count * g), expected * g);
                held.push_back({expected, count});
                for (std::size_t i = 0; i < count; ++i) taken[expected + i] = true;
            } else {
                std::swap(held[random() % held.size()], held.back());
                free.give_back(held.back().begin * g, held.back().count * g);
                for (std::size_t i = 0; i < held.back().count; ++i) taken[held.back().begin + i] = false;
                held.pop_back();
            }
        }
    }
}

}  // namespace
}  // namespace penstock::pool
