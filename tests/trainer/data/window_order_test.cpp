#include "trainer/data/window_order.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace penstock::trainer {
namespace {

TEST(Permutation, VisitsEachIndexOnce) {
    for (const std::uint64_t count :
         {1ULL, 2ULL, 3ULL, 4ULL, 5ULL, 16ULL, 17ULL, 63ULL, 64ULL, 65ULL, 1000ULL, 4097ULL}) {
        const Permutation order(count, 12345);
        std::vector<char> seen(count, 0);
        for (std::uint64_t i = 0; i < count; ++i) {
            const std::uint64_t value = order.at(i);
            ASSERT_LT(value, count);
            EXPECT_EQ(seen[value]++, 0) << count << " at " << i;
        }
    }
}

TEST(Permutation, WorksForHugeCounts) {
    const std::uint64_t count = (1ULL << 40) + 7;
    const Permutation order(count, 1);
    std::set<std::uint64_t> seen;
    for (std::uint64_t i = 0; i < 1000; ++i) EXPECT_LT(*seen.insert(order.at(i)).first, count);
    EXPECT_EQ(seen.size(), 1000U);
}

TEST(Permutation, DependsOnTheSeedAndIsNotTheIdentity) {
    const Permutation one(1000, 1);
    const Permutation two(1000, 2);
    int equal = 0;
    int fixed = 0;
    for (std::uint64_t i = 0; i < 1000; ++i) {
        equal += one.at(i) == two.at(i) ? 1 : 0;
        fixed += one.at(i) == i ? 1 : 0;
    }
    EXPECT_LT(equal, 20);  // about one is expected by chance
    EXPECT_LT(fixed, 20);
}

TEST(WindowOrder, EachEpochVisitsEachWindowOnceInAnOrderOfItsOwn) {
    const WindowOrder order(1001, 10, 7);
    ASSERT_EQ(order.window_count(), 100U);
    std::vector<std::vector<std::uint64_t>> epochs(3);
    for (std::uint64_t row = 0; row < 300; ++row) epochs[row / 100].push_back(order.first_token(row));
    for (const auto& epoch : epochs) {
        const std::set<std::uint64_t> seen(epoch.begin(), epoch.end());
        EXPECT_EQ(seen.size(), 100U);
        EXPECT_EQ(*seen.begin(), 0U);
        EXPECT_EQ(*seen.rbegin(), 990U);  // reads tokens 990 … 1000: the last token is a target
    }
    EXPECT_NE(epochs[0], epochs[1]);
    EXPECT_NE(epochs[1], epochs[2]);
}

TEST(WindowOrder, NeedsOneTokenMoreThanTheContext) {
    EXPECT_EQ(WindowOrder(11, 10, 1).window_count(), 1U);
    EXPECT_EQ(WindowOrder(20, 10, 1).window_count(), 1U);
    EXPECT_EQ(WindowOrder(21, 10, 1).window_count(), 2U);
    EXPECT_DEATH(WindowOrder(10, 10, 1), "10 tokens, context 10");
}

// The order is part of what makes a resume exact, across versions of this program too: these values must not change.
TEST(WindowOrder, StaysWhatItIs) {
    const WindowOrder order(1001, 10, 7);
    std::vector<std::uint64_t> rows;
    for (const std::uint64_t row : {0ULL, 1ULL, 2ULL, 99ULL, 100ULL, 250ULL}) rows.push_back(order.first_token(row));
    EXPECT_EQ(rows, (std::vector<std::uint64_t>{90, 670, 780, 230, 10, 620}));
}

}  // namespace
}  // namespace penstock::trainer
