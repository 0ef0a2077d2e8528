#include "tests/swap/store/histories.h"

#include "tests/seeds.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

void expect_one_history(DriveFault fault) {
    const std::uint64_t first = first_seed();
    const std::uint64_t count = seed_count(20);
    for (std::uint64_t seed = first; seed < first + count && !::testing::Test::HasFailure(); ++seed) {
        for (const std::string& complaint : run_histories(fault, seed))
            ADD_FAILURE() << complaint << '\n' << replay(seed);
    }
}

TEST(Histories, AManifestThatCanBeReadAgainIsNotTakenOnceTheNextLifeHasBegun) {
    expect_one_history(DriveFault::heals);
}

TEST(Histories, OfTwoGenerationsWithOneNumberTheLaterLifesCounts) {
    expect_one_history(DriveFault::stuck);
}

}  // namespace
}  // namespace penstock::testing
