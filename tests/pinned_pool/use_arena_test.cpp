#include "pinned_pool/use_arena.h"

#include "tests/pinned_pool/addresses.h"

#include <gtest/gtest.h>

namespace penstock::pool {
namespace {

constexpr std::size_t g = granule_bytes;

TEST(UseArena, CountsWhatWasRequestedGrantedAndRefused) {
    const Addresses addresses(8 * g);
    Gauge pool;
    UseArena arena("use", addresses.span(), pool);
    Block* a = arena.take(1);
    Block* b = arena.take(3 * g - 1);
    Block* c = arena.take(4 * g);
    EXPECT_EQ(arena.take(1), nullptr);
    arena.end_lease(*a);
    arena.end_lease(*c);
    EXPECT_EQ(arena.take(5 * g), nullptr);  // there are five, but not in one piece
    EXPECT_EQ(arena.take(5 * g + 1), nullptr);
    EXPECT_EQ(arena.take(~std::size_t{0}), nullptr);
    const UseFigures figures = arena.figures();
    EXPECT_EQ(figures.bytes, 8 * g);
    EXPECT_EQ(figures.granted_bytes, 3 * g);
    EXPECT_EQ(figures.peak_bytes, 8 * g);
    EXPECT_EQ(figures.longest_free_bytes, 4 * g);
    EXPECT_EQ(figures.reach_bytes, 8 * g);
    EXPECT_EQ(figures.leases, 3U);
    EXPECT_EQ(figures.requested_bytes, 1 + 3 * g - 1 + 4 * g);
    EXPECT_EQ(figures.requested_granted_bytes, 8 * g);
    EXPECT_EQ(figures.refused, 4U);
    EXPECT_EQ(figures.refused_fragmented, 1U);
    EXPECT_DOUBLE_EQ(figures.fragmentation(), 1 - 4.0 / 5.0);
    arena.end_lease(*b);
    EXPECT_EQ(arena.figures().fragmentation(), 0);
    arena.end_lease(*arena.take(2 * g));
    EXPECT_EQ(arena.figures().reach_bytes, 8 * g);
}

TEST(UseArena, HasNoFragmentationWhenNothingIsFree) {
    const Addresses addresses(g);
    Gauge pool;
    UseArena arena("use", addresses.span(), pool);
    Block* all = arena.take(g);
    EXPECT_EQ(arena.figures().fragmentation(), 0);
    arena.end_lease(*all);
}

TEST(UseArena, ParksABlockUntilItsLastHoldEnds) {
    const Addresses addresses(4 * g);
    Gauge pool;
    UseArena arena("use", addresses.span(), pool);
    Block* block = arena.take(3 * g);
    block->claims += 2;
    arena.end_lease(*block);
    EXPECT_EQ(arena.figures().parked_bytes, 3 * g);
    EXPECT_EQ(arena.figures().granted_bytes, 3 * g);
    arena.end_hold(*block);
    EXPECT_EQ(arena.figures().parked_bytes, 3 * g);
    arena.end_hold(*block);
    EXPECT_EQ(arena.figures().parked_bytes, 0U);
    EXPECT_EQ(arena.figures().peak_parked_bytes, 3 * g);
    EXPECT_EQ(arena.figures().longest_free_bytes, 4 * g);
    EXPECT_EQ(pool.now(), 0U);
}

TEST(UseArena, IsNotParkedWhenTheLeaseEndsLast) {
    const Addresses addresses(4 * g);
    Gauge pool;
    UseArena arena("use", addresses.span(), pool);
    Block* block = arena.take(g);
    ++block->claims;
    arena.end_hold(*block);
    EXPECT_EQ(arena.figures().granted_bytes, g);
    arena.end_lease(*block);
    EXPECT_EQ(arena.figures().granted_bytes, 0U);
    EXPECT_EQ(arena.figures().peak_parked_bytes, 0U);
}

TEST(UseArena, NeverGrantsForsakenMemoryAgain) {
    const Addresses addresses(4 * g);
    Gauge pool;
    UseArena arena("use", addresses.span(), pool);
    Block* by_lease = arena.take(g);
    Block* by_hold = arena.take(g);
    ++by_lease->claims;
    ++by_hold->claims;
    arena.orphan(*by_lease);
    arena.end_lease(*by_hold);
    EXPECT_EQ(arena.figures().parked_bytes, g);
    arena.orphan(*by_hold);
    arena.end_hold(*by_lease);
    const UseFigures figures = arena.figures();
    EXPECT_EQ(figures.orphaned_bytes, 2 * g);
    EXPECT_EQ(figures.granted_bytes, 2 * g);
    EXPECT_EQ(figures.parked_bytes, 0U);
    EXPECT_EQ(figures.longest_free_bytes, 2 * g);
    Block* later = arena.take(2 * g);
    ASSERT_NE(later, nullptr);
    EXPECT_EQ(later->data, addresses.data() + 2 * g);
    EXPECT_NE(later, by_lease);
    EXPECT_NE(later, by_hold);
    arena.end_lease(*later);
}

TEST(UseArena, CountsMemoryAsForsakenOnceWhoeverSaysSo) {
    const Addresses addresses(4 * g);
    Gauge pool;
    UseArena arena("use", addresses.span(), pool);
    Block* block = arena.take(g);
    block->claims += 2;
    arena.orphan(*block);  // a hold
    arena.end_lease(*block);
    arena.orphan(*block);  // the other one
    EXPECT_EQ(arena.figures().orphaned_bytes, g);
    EXPECT_EQ(arena.figures().parked_bytes, 0U);
    EXPECT_EQ(arena.figures().peak_parked_bytes, 0U);
}

TEST(UseArena, ChecksThatNoClaimEndsTwice) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const Addresses addresses(4 * g);
    Gauge pool;
    UseArena arena("staging", addresses.span(), pool);
    Block* block = arena.take(g);
    EXPECT_DEATH(arena.end_hold(*block), "staging: the last hold on 4096 bytes ends before the lease");
    ++block->claims;
    arena.end_lease(*block);
    EXPECT_DEATH(arena.end_lease(*block), "staging: a lease of 4096 bytes ends twice");
    arena.end_hold(*block);
}

TEST(UseArena, KeepsThePeakOfItselfAndOfThePool) {
    const Addresses addresses(8 * g);
    Gauge pool;
    UseArena first("first", addresses.span().first(4 * g), pool);
    UseArena second("second", addresses.span().subspan(4 * g), pool);
    first.end_lease(*first.take(3 * g));
    Block* in_second = second.take(2 * g);
    Block* in_first = first.take(2 * g);
    EXPECT_EQ(first.gauge().peak(), 3 * g);
    EXPECT_EQ(first.gauge().now(), 2 * g);
    EXPECT_EQ(pool.now(), 4 * g);
    EXPECT_EQ(pool.peak(), 4 * g);
    second.end_lease(*in_second);
    first.end_lease(*in_first);
}

TEST(UseArena, GrantsNothingFromAnEmptyUse) {
    Gauge pool;
    UseArena arena("empty", {}, pool);
    EXPECT_EQ(arena.take(g), nullptr);
    EXPECT_EQ(arena.figures().longest_free_bytes, 0U);
    EXPECT_EQ(arena.figures().fragmentation(), 0);
}

}  // namespace
}  // namespace penstock::pool
