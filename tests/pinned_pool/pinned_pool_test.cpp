#include "pinned_pool/pinned_pool.h"
#include "aio/words/error.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

namespace penstock::pool {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

MachineMemory roomy() {
    return {1ULL << 40, "free RAM"};
}

Budget two_uses() {
    Budget budget(4 * mib, "memory.host_budget");
    budget.add({"weights", 2 * mib, "memory.weights"});
    budget.add({"staging", 64 * kib, "memory.staging"});
    return budget;
}

TEST(PinnedPool, AllocatesTheUsesAndReportsTheLimit) {
    const PinnedPool pool(two_uses(), roomy(), {});
    EXPECT_EQ(pool.budget_bytes(), 4 * mib);
    EXPECT_EQ(pool.arena_bytes(), 2 * mib + 64 * kib);
    EXPECT_EQ(pool.in_use_bytes(), 0U);
}

TEST(PinnedPool, RefusesABudgetThatDoesNotFitBeforeItAllocates) {
    Budget budget(1ULL << 50, "memory.host_budget");
    budget.add({"weights", 1ULL << 49, "memory.weights"});
    try {
        const PinnedPool pool(budget, {1 << 20, "free RAM"}, {});
        FAIL() << "half a pebibyte was granted";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::does_not_fit);
    }
    Budget small(4096, "memory.host_budget");
    small.add({"weights", 8192, "memory.weights"});
    EXPECT_THROW(PinnedPool(small, roomy(), {}), Error);
}

TEST(PinnedPool, LeaseIsAlignedRoundedUpAndReturnsItsMemoryWhenDestroyed) {
    PinnedPool pool(two_uses(), roomy(), {});
    const UseId staging = pool.use("staging");
    {
        const auto lease = pool.try_acquire(staging, 5000);
        ASSERT_TRUE(lease.has_value());
        EXPECT_TRUE(static_cast<bool>(*lease));
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lease->data()) % granule_bytes, 0U);
        EXPECT_EQ(lease->bytes(), 8192U);
        EXPECT_EQ(lease->span().size(), 8192U);
        EXPECT_EQ(pool.in_use_bytes(), 8192U);
        EXPECT_EQ(pool.in_use_bytes(staging), 8192U);
        EXPECT_EQ(pool.in_use_bytes(pool.use("weights")), 0U);
    }
    EXPECT_EQ(pool.in_use_bytes(), 0U);
    EXPECT_EQ(pool.peak_bytes(), 8192U);
    EXPECT_EQ(pool.peak_bytes(staging), 8192U);
    EXPECT_TRUE(pool.try_acquire(staging, 64 * kib).has_value());
}

TEST(PinnedPool, OneUseCannotTakeWhatBelongsToAnother) {
    PinnedPool pool(two_uses(), roomy(), {});
    const Lease all = pool.acquire(pool.use("staging"), 64 * kib);
    EXPECT_FALSE(pool.try_acquire(pool.use("staging"), 1).has_value());
    EXPECT_FALSE(pool.try_acquire(pool.use("staging"), ~std::size_t{0}).has_value());
    EXPECT_TRUE(pool.try_acquire(pool.use("weights"), 2 * mib).has_value());
}

TEST(PinnedPool, MovedLeasesReturnTheirMemoryOnce) {
    PinnedPool pool(two_uses(), roomy(), {});
    const UseId staging = pool.use("staging");
    Lease first = pool.acquire(staging, 4096);
    Lease second = std::move(first);
    EXPECT_FALSE(static_cast<bool>(first));  // NOLINT: the moved-from state is the subject
    EXPECT_EQ(first.bytes(), 0U);
    Lease third = pool.acquire(staging, 8192);
    EXPECT_EQ(pool.in_use_bytes(), 12288U);
    third = std::move(second);
    EXPECT_EQ(pool.in_use_bytes(), 4096U);
    Lease& same = third;
    third = std::move(same);
    EXPECT_EQ(pool.in_use_bytes(), 4096U);
    third.reset();
    third.reset();
    EXPECT_EQ(pool.in_use_bytes(), 0U);
}

TEST(PinnedPool, ChecksWhatItsCallersPromise) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    PinnedPool pool(two_uses(), roomy(), {});
    const UseId staging = pool.use("staging");
    EXPECT_DEATH(pool.use("stagging"), "no use named stagging");
    EXPECT_DEATH(pool.try_acquire(staging, 0), "a lease of no bytes from staging");
    EXPECT_DEATH(pool.try_acquire(UseId{7}, 1), "use 7 of 2");
    const Lease held = pool.acquire(staging, 32 * kib);
    EXPECT_DEATH(pool.acquire(staging, 40 * kib),
                 "staging has no room for 40960 bytes: 32768 of 65536 are in use, the longest free range has 32768");
    EXPECT_DEATH(
        {
            auto brief = std::make_unique<PinnedPool>(two_uses(), roomy(), PoolOptions{});
            const Lease lease = brief->acquire(staging, 1);
            brief.reset();
        },
        "the pool ends while 4096 bytes of staging are leased");
}

TEST(PinnedPool, RefusesAUseThatNobodyHasLookedUp) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    PinnedPool pool(two_uses(), roomy(), {});
    EXPECT_DEATH(pool.try_acquire(UseId{}, 1), "use 4294967295 of 2");
}

TEST(PinnedPool, TellsWhatBecameOfEachUse) {
    PinnedPool pool(two_uses(), roomy(), {});
    const UseId staging = pool.use("staging");
    Lease lease = pool.acquire(staging, 5000);
    EXPECT_FALSE(pool.try_acquire(staging, 64 * kib).has_value());
    const UseFigures figures = pool.figures(staging);
    EXPECT_EQ(figures.bytes, 64 * kib);
    EXPECT_EQ(figures.granted_bytes, 8192U);
    EXPECT_EQ(figures.requested_bytes, 5000U);
    EXPECT_EQ(figures.refused, 1U);
    EXPECT_EQ(pool.figures(pool.use("weights")).leases, 0U);
}

// The sum of the uses is three pieces of 2 MiB and one of 64 KiB; the second use begins within the second piece.
TEST(PinnedPool, CountsItsSeamsFromTheArenasBegin) {
    Budget budget(64 * mib, "memory.host_budget");
    budget.add({"first", 3 * mib, ""});
    budget.add({"none", 0, ""});
    budget.add({"second", 3 * mib + 64 * kib, ""});
    PinnedPool pool(budget, roomy(), {.piece_bytes = 2 * mib});
    const Lease whole = pool.acquire(pool.use("first"), 3 * mib);  // leases ignore the seams
    EXPECT_EQ(pool.seam_after(whole.data()), 2 * mib);
    EXPECT_EQ(pool.seam_after(whole.data() + 1), 2 * mib - 1);
    EXPECT_EQ(pool.seam_after(whole.data() + 2 * mib - 1), 1U);
    EXPECT_EQ(pool.seam_after(whole.data() + 2 * mib), 2 * mib);
    EXPECT_EQ(pool.seam_after(whole.data() + 3 * mib), mib);

    constexpr std::size_t none = std::numeric_limits<std::size_t>::max();
    const std::byte elsewhere{};
    EXPECT_EQ(pool.seam_after(&elsewhere), none);
    EXPECT_EQ(pool.seam_after(whole.data() - 1), none);
    EXPECT_EQ(pool.seam_after(whole.data() + pool.arena_bytes()), none);
}

// Where the budget leaves no room for a last whole huge page, what lies behind the others is in small pages.
TEST(PinnedPool, OffersItsArenaToARingWithATailInSmallPagesByItself) {
    for (const std::size_t limit : {7 * mib, 8 * mib}) {
        Budget budget(limit, "memory.host_budget");
        budget.add({"first", 3 * mib, ""});
        budget.add({"none", 0, ""});
        budget.add({"second", 4 * mib - 4 * kib, ""});
        PinnedPool pool(budget, roomy(), {.piece_bytes = 2 * mib});
        const Lease first = pool.acquire(pool.use("first"), 3 * mib);
        std::vector<std::size_t> bytes;
        for (const std::span<std::byte> range : pool.ring_ranges()) {
            EXPECT_EQ(range.data(), first.data() + std::accumulate(bytes.begin(), bytes.end(), std::size_t{0}));
            bytes.push_back(range.size());
        }
        EXPECT_EQ(bytes, limit == 8 * mib ? std::vector<std::size_t>{7 * mib - 4 * kib}
                                          : (std::vector<std::size_t>{6 * mib, mib - 4 * kib}));
    }
}

TEST(PinnedPool, ChecksThatPiecesAreWholeHugePages) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    EXPECT_DEATH(PinnedPool(two_uses(), roomy(), {.piece_bytes = 0}), "pieces of 0 bytes");
    EXPECT_DEATH(PinnedPool(two_uses(), roomy(), {.piece_bytes = 3 * mib}), "pieces of 3145728 bytes");
}

TEST(PinnedPool, HasNoHugePagesWhenTheyAreAvoidedAndThatIsNoNews) {
    Budget budget(64 * mib, "memory.host_budget");
    budget.add({"weights", 8 * mib, ""});
    const PinnedPool avoided(budget, roomy(), {.huge_pages = HugePages::avoided});
    EXPECT_EQ(avoided.huge_bytes(), 0U);
    EXPECT_TRUE(avoided.notes().empty());
    const PinnedPool wanted(budget, roomy(), {});
    EXPECT_EQ(wanted.huge_bytes() == 8 * mib, wanted.notes().empty());
    EXPECT_FALSE(wanted.registered());
}

// The last lease must not lie in small pages: I/O on them is several times slower.
TEST(PinnedPool, MapsWholeHugePagesWhereTheLimitAllowsIt) {
    Budget roomy_budget(64 * mib, "memory.host_budget");
    roomy_budget.add({"weights", 3 * mib, ""});
    const PinnedPool rounded(roomy_budget, roomy(), {});
    EXPECT_EQ(rounded.arena_bytes(), 3 * mib);
    EXPECT_EQ(rounded.huge_bytes() == 4 * mib, rounded.notes().empty());
    EXPECT_EQ(rounded.figures(rounded.use("weights")).bytes, 3 * mib);

    Budget exact_budget(3 * mib, "memory.host_budget");
    exact_budget.add({"weights", 3 * mib, ""});
    const PinnedPool exact(exact_budget, roomy(), {});
    EXPECT_LE(exact.huge_bytes(), 2 * mib);
}

TEST(PinnedPool, HasUsesOfNoBytes) {
    Budget budget(mib, "memory.host_budget");
    budget.add({"empty", 0, ""});
    PinnedPool pool(budget, roomy(), {});
    EXPECT_FALSE(pool.try_acquire(pool.use("empty"), 1).has_value());
}

TEST(PinnedPool, LeasesOfAllUsesAndThreadsNeverOverlap) {
    PinnedPool pool(two_uses(), roomy(), {});
    std::vector<std::thread> threads;
    std::atomic<int> overlaps{0};
    for (unsigned number = 1; number <= 4; ++number) {
        threads.emplace_back([&pool, &overlaps, number] {
            std::mt19937 random(number);
            std::vector<Lease> held;
            for (int step = 0; step < 2000; ++step) {
                const UseId use = pool.use(random() % 2 == 0 ? "weights" : "staging");
                if (auto lease = pool.try_acquire(use, 1 + random() % (20 * kib))) {
                    std::memset(lease->data(), static_cast<int>(number), lease->bytes());
                    held.push_back(std::move(*lease));
                }
                if (!held.empty() && random() % 2 == 0) {
                    std::swap(held[random() % held.size()], held.back());
                    for (const std::byte b : held.back().span()) overlaps += b != static_cast<std::byte>(number);
                    held.pop_back();
                }
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(overlaps.load(), 0);
    EXPECT_EQ(pool.in_use_bytes(), 0U);
    EXPECT_LE(pool.peak_bytes(), pool.arena_bytes());
}

}  // namespace
}  // namespace penstock::pool
