#include "zero_infinity/threads/workers.h"

#include <gtest/gtest.h>

#ifdef __SSE2__
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace penstock::zero {
namespace {

TEST(Workers, RunEachIndexOnce) {
    for (const unsigned threads : {1U, 2U, 3U, 8U}) {
        Workers workers(threads);
        EXPECT_EQ(workers.thread_count(), threads);
        for (const std::size_t count : {0U, 1U, 2U, 3U, 7U, 100U, 5000U}) {
            std::vector<std::atomic<int>> calls(count);
            workers.run(count, [&](std::size_t i) { calls[i].fetch_add(1, std::memory_order_relaxed); });
            for (std::size_t i = 0; i < count; ++i) {
                ASSERT_EQ(calls[i].load(), 1) << threads << ' ' << count << ' ' << i;
            }
        }
    }
}

// Plain memory, no atomics: ThreadSanitizer fails here when run() hands the work over or back without synchronisation.
TEST(Workers, WhatTheWorkReadsAndWritesNeedsNoLock) {
    Workers workers(4);
    std::vector<std::uint64_t> input(300);
    std::vector<std::uint64_t> output(300);
    for (std::uint64_t round = 0; round < 500; ++round) {
        for (std::size_t i = 0; i < input.size(); ++i) input[i] = round + i;
        workers.run(input.size(), [&](std::size_t i) { output[i] = 3 * input[i]; });
        for (std::size_t i = 0; i < output.size(); ++i) ASSERT_EQ(output[i], 3 * (round + i));
    }
}

#ifdef __SSE2__
// Subnormals of the caller's that are flushed to zero, and of others that are not, would make results a matter of luck.
TEST(Workers, WorkHasTheDefaultArithmeticAndTheCallerItsOwn) {
    for (const unsigned threads : {1U, 4U}) {
        Workers workers(threads);
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | 0x8040);  // flush to zero, subnormals are zero
        std::vector<float> products(1000);
        const volatile float tiny = 1e-21F;
        workers.run(products.size(), [&](std::size_t i) { products[i] = tiny * 1e-20F; });
        const unsigned after = _mm_getcsr();
        _mm_setcsr(before);
        EXPECT_EQ(after & 0x8040U, 0x8040U);
        EXPECT_EQ(std::count(products.begin(), products.end(), 0.0F), 0) << threads << " threads";
    }
}
#endif

TEST(Workers, OneThreadIsTheCallersOwn) {
    Workers workers(1);
    std::set<std::thread::id> seen;
    workers.run(50, [&](std::size_t) { seen.insert(std::this_thread::get_id()); });
    EXPECT_EQ(seen, std::set<std::thread::id>{std::this_thread::get_id()});
}

// Each piece waits until all have begun: this ends only when as many threads as pieces work at the same time.
TEST(Workers, AllThreadsWorkAtTheSameTime) {
    constexpr unsigned threads = 3;
    Workers workers(threads);
    std::atomic<unsigned> begun{0};
    workers.run(threads, [&](std::size_t) {
        begun.fetch_add(1);
        while (begun.load() < threads) std::this_thread::yield();
    });
    EXPECT_EQ(begun.load(), threads);
}

// The first pieces hold their threads until all have begun, so that all of them then take the rest at the same time.
TEST(Workers, RunEachIndexOnceWhenAllThreadsTakeAtTheSameTime) {
    constexpr unsigned threads = 4;
    constexpr std::size_t count = 300000;
    Workers workers(threads);
    for (int round = 0; round < 5; ++round) {
        std::atomic<unsigned> begun{0};
        std::vector<std::atomic<int>> calls(count);
        workers.run(count, [&](std::size_t i) {
            calls[i].fetch_add(1, std::memory_order_relaxed);
            if (i >= threads) return;
            begun.fetch_add(1);
            while (begun.load() < threads) std::this_thread::yield();
        });
        std::size_t once = 0;
        for (const auto& call : calls) once += call.load() == 1 ? 1U : 0U;
        ASSERT_EQ(once, count);
    }
}

// The pause only gives a run() that returns too early the time to be caught.
TEST(Workers, RunReturnsAfterTheSlowestThread) {
    constexpr unsigned threads = 2;
    Workers workers(threads);
    const auto caller = std::this_thread::get_id();
    std::atomic<unsigned> begun{0};
    std::atomic<unsigned> ended{0};
    workers.run(threads, [&](std::size_t) {
        begun.fetch_add(1);
        while (begun.load() < threads) std::this_thread::yield();
        if (std::this_thread::get_id() != caller) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        ended.fetch_add(1);
    });
    EXPECT_EQ(ended.load(), threads);
}

TEST(Workers, TakeConstantFunctionObjects) {
    std::atomic<std::size_t> sum{0};
    const auto work = [&](std::size_t i) { sum += i; };
    Workers(2).run(10, work);
    EXPECT_EQ(sum.load(), 45U);
}

TEST(Workers, StartAndStopWithoutWork) {
    for (int i = 0; i < 50; ++i) Workers workers(4);
}

TEST(WorkersDeathTest, RefuseACallFromWithinWork) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(
        {
            Workers workers(1);
            workers.run(1, [&](std::size_t) { workers.run(1, [](std::size_t) {}); });
        },
        "while another call is under way");
    EXPECT_DEATH(Workers(0), "needs a thread");
}

}  // namespace
}  // namespace penstock::zero
