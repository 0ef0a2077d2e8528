// What a lease costs: alone, with a claim on it, and among many others whose neighbours are free.
#include "pinned_pool/pinned_pool.h"

#include <benchmark/benchmark.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::bench {
namespace {

constexpr std::uint64_t lease_bytes = 64 << 10;
constexpr std::uint64_t use_bytes = 64 << 20;

pool::PinnedPool small_pool() {
    pool::Budget budget(use_bytes, "");
    budget.add({.name = "use", .bytes = use_bytes, .setting = {}});
    return {budget, pool::MachineMemory::read(), {}};
}

void lease(benchmark::State& state) {
    pool::PinnedPool pool = small_pool();
    const pool::UseId use = pool.use("use");
    for (auto _ : state) benchmark::DoNotOptimize(pool.try_acquire(use, lease_bytes));
}
BENCHMARK(lease);

// The lease is dropped while its claim stays: parked, then returned.
void lease_parked(benchmark::State& state) {
    pool::PinnedPool pool = small_pool();
    const pool::UseId use = pool.use("use");
    for (auto _ : state) {
        pool::Lease one = pool.acquire(use, lease_bytes);
        pool::Hold hold = one.hold();
        one.reset();
        benchmark::DoNotOptimize(hold);
    }
}
BENCHMARK(lease_parked);

// Half of a thousand leases are back, each between two that are not: first fit has to look behind all of these holes.
void lease_behind_500_holes(benchmark::State& state) {
    pool::PinnedPool pool = small_pool();
    const pool::UseId use = pool.use("use");
    std::vector<pool::Lease> leases;
    for (std::uint64_t i = 0; i < use_bytes / lease_bytes - 24; ++i) leases.push_back(pool.acquire(use, lease_bytes));
    for (std::size_t i = 0; i < leases.size(); i += 2) leases[i].reset();
    for (auto _ : state) benchmark::DoNotOptimize(pool.try_acquire(use, 2 * lease_bytes));
}
BENCHMARK(lease_behind_500_holes);

void lease_refused(benchmark::State& state) {
    pool::PinnedPool pool = small_pool();
    const pool::UseId use = pool.use("use");
    const pool::Lease all = pool.acquire(use, use_bytes);
    for (auto _ : state) benchmark::DoNotOptimize(pool.try_acquire(use, lease_bytes));
}
BENCHMARK(lease_refused);

}  // namespace
}  // namespace penstock::bench
