// In steady state the pool allocates nothing. An executable of its own: tests/allocations.h says why.
#include "pinned_pool/pinned_pool.h"
#include "tests/allocations.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace penstock::pool {
namespace {

constexpr std::size_t most = 600;

Budget staging_of(std::size_t leases) {
    Budget budget(1 << 30, "memory.host_budget");
    budget.add({"staging", leases * granule_bytes, "memory.staging"});
    return budget;
}

struct Held {
    Lease lease;
    Hold hold;
};

// Which allocations it takes to have so many leases out, and then to end and renew them in any order.
struct Round {
    std::uint64_t to_fill = 0;
    std::uint64_t later = 0;
};

Round allocations_of_a_round(PinnedPool& pool, UseId use, std::mt19937& random) {
    std::array<Held, most> held;
    const std::uint64_t before = testing::allocations();
    for (Held& each : held) {
        each.lease = pool.acquire(use, 1 + random() % granule_bytes);
        each.hold = each.lease.hold();
    }
    const std::uint64_t filled = testing::allocations();
    for (std::size_t i = 0; i < 4 * most; ++i) {
        Held& each = held[random() % most];
        each.lease.reset();
        if (random() % 2 == 0) each.hold.reset();
        if (auto lease = pool.try_acquire(use, 1 + random() % (2 * granule_bytes))) {
            each.hold = lease->hold();
            each.lease = std::move(*lease);
        }
    }
    for (Held& each : held) each = {};
    for (Held& each : held) each.lease = pool.acquire(use, 1);
    for (std::size_t i = 0; i < most; i += 2) held[i] = {};  // every second one: the most free ranges
    for (Held& each : held) each = {};
    static_cast<void>(pool.figures(use));
    return {filled - before, testing::allocations() - filled};
}

TEST(PinnedPool, AllocatesNothingWhileNoMoreLeasesAreOutThanBefore) {
    PinnedPool pool(staging_of(most), {1ULL << 40, "free RAM"}, {});
    const UseId use = pool.use("staging");
    std::mt19937 random(1);
    const Round first = allocations_of_a_round(pool, use, random);
    EXPECT_GT(first.to_fill, 0U);
    EXPECT_EQ(first.later, 0U);
    for (int round = 0; round < 20; ++round) {
        const Round further = allocations_of_a_round(pool, use, random);
        EXPECT_EQ(further.to_fill, 0U);
        EXPECT_EQ(further.later, 0U);
    }
}

// However many records fill the memory that holds them.
TEST(PinnedPool, AllocatesNothingForARequestThatIsRefused) {
    for (std::size_t count = 1; count <= 30; ++count) {
        PinnedPool pool(staging_of(count), {1ULL << 40, "free RAM"}, {});
        const UseId use = pool.use("staging");
        std::vector<Lease> leases;
        for (std::size_t i = 0; i < count; ++i) leases.push_back(pool.acquire(use, 1));
        const std::uint64_t before = testing::allocations();
        EXPECT_FALSE(pool.try_acquire(use, 1).has_value());
        EXPECT_EQ(testing::allocations(), before);
    }
}

}  // namespace
}  // namespace penstock::pool
