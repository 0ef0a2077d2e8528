// Every commit survives: whatever instant a process is killed at, the next one finds every byte of the last generation,
// and of a scratch store nothing, over which it makes a new one.
// --runs=N: that many kills instead of 200. --seed=N alone: the one store of that seed.
#include "tests/seeds.h"
#include "tests/swap/kills/kill_matrix.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>

namespace penstock::testing {
namespace {

constexpr std::uint64_t usual_kills = 200;

// All kinds of instants must have been hit, or the kills have shown nothing.
void expect_struck(const KillTally& tally) {
    for (const std::uint64_t count :
         {tally.in_start, tally.in_steps, tally.in_commit, tally.by_clock, tally.every_step, tally.every_k_steps,
          tally.scratch, tally.new_found, tally.old_found, tally.damaged}) {
        EXPECT_GT(count, 0U);
    }
    for (const std::uint64_t count : tally.by_point) EXPECT_GT(count, 0U);
    for (const std::uint64_t count : tally.by_residency) EXPECT_GT(count, 0U);
}

TEST(Kill, AtAnyInstantLosesNoCommittedGeneration) {
    const std::uint64_t first = first_seed();
    const std::uint64_t kills = seed_count(usual_kills);
    std::printf("%s --runs=%llu\n", replay(first).c_str(), static_cast<unsigned long long>(kills));
    const auto start = std::chrono::steady_clock::now();
    KillMatrix matrix(std::filesystem::temp_directory_path());
    for (std::uint64_t seed = first; matrix.tally().kills < kills && !HasFailure(); ++seed) {
        for (const std::string& complaint : matrix.run(seed)) ADD_FAILURE() << complaint << '\n' << replay(seed);
    }
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    std::printf("RESULT kills: %s; %.1f kills per second; first seed %llu\n", to_string(matrix.tally()).c_str(),
                static_cast<double>(matrix.tally().kills) / spent.count(), static_cast<unsigned long long>(first));
    if (kills >= usual_kills) expect_struck(matrix.tally());
}

}  // namespace
}  // namespace penstock::testing
