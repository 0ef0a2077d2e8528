#include "pinned_pool/use_arena.h"

#include "tests/aio/scratch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <vector>

namespace penstock {
namespace {

constexpr std::size_t g = 4096;

TEST(UseArena, TakesTheFirstRangeThatIsLongEnough) {
    std::vector<std::byte> memory(10 * g);
    Gauge pool;
    UseArena arena("use", memory.data(), memory.size(), pool);
    std::byte* a = arena.take(2 * g);
    std::byte* b = arena.take(g);
    std::byte* c = arena.take(3 * g);
    std::byte* d = arena.take(4 * g);
    EXPECT_EQ(a, memory.data());
    EXPECT_EQ(d, memory.data() + 6 * g);
    EXPECT_EQ(arena.take(g), nullptr);
    arena.give_back(a, 2 * g);
    arena.give_back(c, 3 * g);
    EXPECT_EQ(arena.take(3 * g), c);
    EXPECT_EQ(arena.take(g), a);
    arena.give_back(b, g);
    EXPECT_EQ(arena.take(2 * g), a + g);
}

TEST(UseArena, MergesWithTheNeighbourBeforeBehindAndOnBothSides) {
    std::vector<std::byte> memory(6 * g);
    for (const auto& order :
         std::vector<std::vector<std::size_t>>{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
        Gauge pool;
        UseArena arena("use", memory.data(), memory.size(), pool);
        for (int i = 0; i < 3; ++i) ASSERT_NE(arena.take(2 * g), nullptr);
        for (const std::size_t piece : order) arena.give_back(memory.data() + piece * 2 * g, 2 * g);
        EXPECT_EQ(arena.longest_free_bytes(), 6 * g);
        EXPECT_EQ(arena.take(6 * g), memory.data());
    }
}

TEST(UseArena, ChecksThatNothingComesBackTwice) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    std::vector<std::byte> memory(4 * g);
    Gauge pool;
    UseArena arena("staging", memory.data(), memory.size(), pool);
    arena.take(4 * g);
    arena.give_back(memory.data() + g, g);
    EXPECT_DEATH(arena.give_back(memory.data() + g, g), "staging: bytes 4096 to 8192 come back but are free");
    EXPECT_DEATH(arena.give_back(memory.data(), 2 * g), "come back but are free");
    EXPECT_DEATH(arena.give_back(memory.data() + 3 * g, 2 * g), "come back but are free");
}

TEST(UseArena, KeepsThePeakOfItselfAndOfThePool) {
    std::vector<std::byte> memory(8 * g);
    Gauge pool;
    UseArena first("first", memory.data(), 4 * g, pool);
    UseArena second("second", memory.data() + 4 * g, 4 * g, pool);
    std::byte* a = first.take(3 * g);
    first.give_back(a, 3 * g);
    second.take(2 * g);
    first.take(2 * g);
    EXPECT_EQ(first.gauge().peak(), 3 * g);
    EXPECT_EQ(first.gauge().now(), 2 * g);
    EXPECT_EQ(pool.now(), 4 * g);
    EXPECT_EQ(pool.peak(), 4 * g);
}

TEST(UseArena, GrantsNothingFromAnEmptyUse) {
    Gauge pool;
    UseArena arena("empty", nullptr, 0, pool);
    EXPECT_EQ(arena.take(g), nullptr);
    EXPECT_EQ(arena.longest_free_bytes(), 0U);
}

// Against a model that knows the owner of every granule: nothing overlaps, first fit is first, nothing is lost.
TEST(UseArena, AgreesWithAModelOnRandomTraces) {
    const std::uint64_t first = first_seed();
    std::printf("seeds from %llu\n", static_cast<unsigned long long>(first));
    for (std::uint64_t seed = first; seed < first + seed_count(200); ++seed) {
        SCOPED_TRACE(::testing::Message() << "replay with PENSTOCK_SEED=" << seed);
        std::mt19937_64 random(seed);
        const std::size_t granules = 1 + random() % 100;
        std::vector<std::byte> memory(granules * g);
        std::vector<bool> taken(granules, false);
        struct Held {
            std::size_t begin, count;
        };
        std::vector<Held> held;
        Gauge pool;
        UseArena arena("use", memory.data(), memory.size(), pool);
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
                std::byte* data = arena.take(count * g);
                ASSERT_EQ(data, run == count ? memory.data() + expected * g : nullptr);
                if (data == nullptr) continue;
                held.push_back({expected, count});
                for (std::size_t i = 0; i < count; ++i) taken[expected + i] = true;
            } else {
                std::swap(held[random() % held.size()], held.back());
                arena.give_back(memory.data() + held.back().begin * g, held.back().count * g);
                for (std::size_t i = 0; i < held.back().count; ++i) taken[held.back().begin + i] = false;
                held.pop_back();
            }
            ASSERT_EQ(pool.now(), static_cast<std::size_t>(std::count(taken.begin(), taken.end(), true)) * g);
        }
    }
}

}  // namespace
}  // namespace penstock
