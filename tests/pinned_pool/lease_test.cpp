#include "pinned_pool/pinned_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace penstock::pool {
namespace {

constexpr std::size_t kib = 1024;

Budget staging_only(std::uint64_t bytes = 64 * kib) {
    Budget budget(1 << 30, "memory.host_budget");
    budget.add({"staging", bytes, "memory.staging"});
    return budget;
}

struct LeaseTest : ::testing::Test {
    PinnedPool pool{staging_only(), {1ULL << 40, "free RAM"}, {}};
    UseId staging = pool.use("staging");
};

TEST_F(LeaseTest, ItsMemoryReturnsWithTheLastHold) {
    Lease lease = pool.acquire(staging, 64 * kib);
    Hold first = lease.hold();
    Hold second = first.hold();
    EXPECT_TRUE(static_cast<bool>(first));
    lease.reset();
    EXPECT_EQ(pool.figures(staging).parked_bytes, 64 * kib);
    EXPECT_EQ(pool.in_use_bytes(), 64 * kib);
    EXPECT_FALSE(pool.try_acquire(staging, 1).has_value());
    first.reset();
    first.reset();
    EXPECT_FALSE(static_cast<bool>(first));
    EXPECT_FALSE(pool.try_acquire(staging, 1).has_value());
    second.reset();
    EXPECT_EQ(pool.figures(staging).parked_bytes, 0U);
    EXPECT_TRUE(pool.try_acquire(staging, 64 * kib).has_value());
}

TEST_F(LeaseTest, AHoldAloneCanBeHeldFurther) {
    Hold last;
    {
        Hold first = pool.acquire(staging, 1).hold();  // the lease is gone at once
        EXPECT_EQ(pool.figures(staging).parked_bytes, 4096U);
        last = first.hold();
    }
    EXPECT_EQ(pool.figures(staging).parked_bytes, 4096U);
    last.reset();
    EXPECT_EQ(pool.in_use_bytes(), 0U);
}

TEST_F(LeaseTest, HoldsMoveAndEndOnce) {
    Lease lease = pool.acquire(staging, 1);
    Hold first = lease.hold();
    Hold second = std::move(first);
    EXPECT_FALSE(static_cast<bool>(first));  // NOLINT: the moved-from state is the subject
    Hold& same = second;
    second = std::move(same);
    lease.reset();
    EXPECT_EQ(pool.in_use_bytes(), 4096U);
    Lease other = pool.acquire(staging, 8192);
    second = other.hold();  // ends the first block's last claim
    EXPECT_EQ(pool.in_use_bytes(), 8192U);
    other.reset();
    second = Hold();
    EXPECT_EQ(pool.in_use_bytes(), 0U);
}

TEST_F(LeaseTest, AMovedLeaseKeepsItsHolds) {
    Lease first = pool.acquire(staging, 1);
    const Hold hold = first.hold();
    Lease second = std::move(first);
    second.reset();
    EXPECT_EQ(pool.figures(staging).parked_bytes, 4096U);
}

TEST_F(LeaseTest, ChecksThatOnlyAClaimMakesAClaim) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const Lease lease;
    EXPECT_DEATH(lease.hold(), "a hold of an empty lease");
    const Hold hold;
    EXPECT_DEATH(hold.hold(), "a hold of an empty hold");
}

TEST_F(LeaseTest, NothingHappensWhenAnEmptyOneIsForsaken) {
    Lease lease;
    lease.orphan();
    Hold hold;
    hold.orphan();
    EXPECT_EQ(pool.figures(staging).orphaned_bytes, 0U);
}

// A sanitizer that looks for leaks must find none at the end of this program.
TEST(Lease, ForsakenMemoryOutlivesThePoolAndIsNeverGrantedAgain) {
    auto pool = std::make_unique<PinnedPool>(staging_only(), MachineMemory{1ULL << 40, "free RAM"}, PoolOptions{});
    const UseId staging = pool->use("staging");
    Lease lease = pool->acquire(staging, 16 * kib);
    Lease parked = pool->acquire(staging, 16 * kib);
    std::byte* data = lease.data();
    Hold hold = lease.hold();
    Hold further = lease.hold();
    Hold of_parked = parked.hold();
    lease.orphan();
    EXPECT_FALSE(static_cast<bool>(lease));
    EXPECT_EQ(lease.data(), nullptr);
    EXPECT_EQ(lease.bytes(), 0U);
    hold.reset();
    parked.reset();
    EXPECT_EQ(pool->figures(staging).parked_bytes, 16 * kib);
    of_parked.orphan();
    EXPECT_EQ(pool->figures(staging).parked_bytes, 0U);
    EXPECT_EQ(pool->figures(staging).orphaned_bytes, 32 * kib);
    EXPECT_FALSE(pool->try_acquire(staging, 33 * kib).has_value());
    EXPECT_EQ(pool->acquire(staging, 32 * kib).data(), data + 32 * kib);
    pool.reset();
    data[100] = std::byte{1};  // as the device that is stuck may
    EXPECT_EQ(data[100], std::byte{1});
    further.reset();
}

TEST(Lease, ChecksThatThePoolOutlivesLeasesAndHolds) {
    ::testing::FLAGS_gtest_death_test_style = "threadsafe";
    const MachineMemory machine{1ULL << 40, "free RAM"};
    EXPECT_DEATH(
        {
            auto pool = std::make_unique<PinnedPool>(staging_only(), machine, PoolOptions{});
            const Hold hold = pool->acquire(pool->use("staging"), 1).hold();
            pool.reset();
        },
        "the pool ends while 4096 bytes of staging are leased, 4096 of them parked");
    EXPECT_DEATH(
        {
            auto pool = std::make_unique<PinnedPool>(staging_only(), machine, PoolOptions{});
            pool->acquire(pool->use("staging"), 1).orphan();
            const Lease lease = pool->acquire(pool->use("staging"), 8192);
            pool.reset();
        },
        "the pool ends while 8192 bytes of staging are leased, 0 of them parked");
}

// Work that another thread does on memory it holds: it writes, checks and lets go, while the owner has let go before.
class Worker {
   public:
    struct Work {
        Hold hold;
        std::span<std::byte> memory;
        std::byte value;
    };
    explicit Worker(std::atomic<int>& damages) : damages_(damages), thread_([this] { run(); }) {}
    ~Worker() {
        push({});
        thread_.join();
    }
    void push(Work work) {
        const std::lock_guard lock(mutex_);
        queue_.push_back(std::move(work));
        arrived_.notify_one();
    }

   private:
    void run() {
        for (;;) {
            std::unique_lock lock(mutex_);
            arrived_.wait(lock, [this] { return !queue_.empty(); });
            Work work = std::move(queue_.front());
            queue_.pop_front();
            lock.unlock();
            if (!work.hold) return;
            // Together in a local: a shared atomic that is changed each time would order what the claims must order.
            auto damages =
                std::count_if(work.memory.begin(), work.memory.end(), [&](std::byte b) { return b != work.value; });
            std::memset(work.memory.data(), 0xff, work.memory.size());
            damages +=
                std::count_if(work.memory.begin(), work.memory.end(), [](std::byte b) { return b != std::byte{0xff}; });
            if (damages != 0) damages_ += 1;
        }
    }
    std::atomic<int>& damages_;
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<Work> queue_;
    std::thread thread_;
};

// ThreadSanitizer sees when a block is granted before its holder's last access.
TEST(Lease, MemoryIsGrantedAgainOnlyAfterWhatItsHoldersDidWithIt) {
    PinnedPool pool(staging_only(256 * kib), {1ULL << 40, "free RAM"}, {});
    const UseId staging = pool.use("staging");
    std::atomic<int> damages{0};
    {
        std::array<Worker, 2> workers{Worker(damages), Worker(damages)};
        std::vector<std::thread> owners;
        for (unsigned number = 1; number <= 3; ++number) {
            owners.emplace_back([&, number] {
                std::mt19937 random(number);
                for (int step = 0; step < 2000; ++step) {
                    auto lease = pool.try_acquire(staging, 1 + random() % (20 * kib));
                    if (!lease) {
                        std::this_thread::yield();
                        continue;
                    }
                    const std::byte value{static_cast<unsigned char>(1 + random() % 200)};
                    std::memset(lease->data(), static_cast<int>(value), lease->bytes());
                    Hold hold = lease->hold();
                    const std::size_t half = lease->bytes() / 2;  // one worker has each half
                    workers[0].push({hold.hold(), lease->span().first(half), value});
                    workers[1].push({std::move(hold), lease->span().subspan(half), value});
                }
            });
        }
        for (std::thread& owner : owners) owner.join();
    }
    EXPECT_EQ(damages.load(), 0);
    const UseFigures figures = pool.figures(staging);
    EXPECT_EQ(figures.granted_bytes, 0U);
    EXPECT_EQ(figures.parked_bytes, 0U);
    EXPECT_EQ(figures.longest_free_bytes, 256 * kib);
    EXPECT_EQ(figures.leases + figures.refused, 6000U);
}

// Both go at the same moment: whichever is last, the memory returns once.
TEST(Lease, ALeaseAndItsHoldMayEndAtTheSameMoment) {
    constexpr int rounds = 20000;
    PinnedPool pool(staging_only(), {1ULL << 40, "free RAM"}, {});
    const UseId staging = pool.use("staging");
    Hold hold;
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    std::thread holder([&] {
        for (int round = 1; round <= rounds; ++round) {
            while (begun.load() < round) std::this_thread::yield();
            hold.reset();
            ended.store(round);
        }
    });
    for (int round = 1; round <= rounds; ++round) {
        Lease lease = pool.acquire(staging, 64 * kib);
        hold = lease.hold();
        begun.store(round);
        lease.reset();
        while (ended.load() < round) std::this_thread::yield();
    }
    holder.join();
    const UseFigures figures = pool.figures(staging);
    EXPECT_EQ(figures.granted_bytes, 0U);
    EXPECT_EQ(figures.parked_bytes, 0U);
}

}  // namespace
}  // namespace penstock::pool
