// The fault matrix on the product. A failure prints the command that replays the one run.
#include "tests/aio/fakes/fault_matrix.h"

#include "aio/words/error.h"
#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <iostream>
#include <tuple>

namespace penstock::aio {
namespace {

constexpr std::uint64_t usual_runs = 600;  // of each fault over each backend, through all combinations

class IoFaults : public ::testing::TestWithParam<std::tuple<std::size_t, BackendKind>> {
   protected:
    const Fault& fault = faults()[std::get<0>(GetParam())];
    const BackendKind kind = std::get<1>(GetParam());
};

// The faults must have struck, or the runs have shown nothing.
void expect_struck(const Fault& fault, const FaultMatrix::Tally& tally) {
    const FaultChances& chances = fault.chances;
    EXPECT_EQ(tally.struck.short_transfers > 0, chances.short_transfer > 0);
    EXPECT_EQ(tally.struck.fatal > 0, chances.no_bytes + chances.io_error + chances.no_space > 0);
    EXPECT_EQ(tally.struck.passing > 0, chances.again + chances.interrupted > 0);
    EXPECT_EQ(tally.struck.delayed > 0, chances.delay > 0);
    EXPECT_GT(tally.promoted, 0U);
    if (fault.errors.empty()) {
        EXPECT_EQ(tally.errors, 0U);
    }
}

TEST_P(IoFaults, EndInRightDataOrAClearError) {
    std::unique_ptr<FaultMatrix> matrix;
    try {
        matrix = std::make_unique<FaultMatrix>(fault, kind);
    } catch (const Error& error) {
        GTEST_SKIP() << error.what();
    }
    const std::uint64_t first = first_seed();
    const std::uint64_t count = seed_count(usual_runs);
    std::cout << replay(first) << " --runs=" << count << '\n';
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
        for (const std::string& complaint : matrix->run(seed)) ADD_FAILURE() << complaint << '\n' << replay(seed);
    }
    if (count >= 10 * FaultMatrix::combinations) expect_struck(fault, matrix->tally());
}

// What makes a replay one: the faults and attempts of a run do not depend on the runs before it, on the scheduler or on
// the device, so they are the same over every backend.
TEST(IoFaultMatrix, ARunDependsOnItsSeedAlone) {
    constexpr std::uint64_t runs = 12;
    const Fault& all = faults().back();
    const std::uint64_t first = first_seed();
    SCOPED_TRACE(replay(first));
    FaultMatrix together(all, BackendKind::threads);
    for (std::uint64_t seed = first; seed < first + runs; ++seed) together.run(seed);
    for (const BackendKind kind : fault_backends()) {
        FaultMatrix::Tally sum;
        try {
            for (std::uint64_t seed = first + runs; seed-- > first;) {
                FaultMatrix alone(all, kind);
                alone.run(seed);
                sum += alone.tally();
            }
        } catch (const Error& error) {
            std::cout << error.what() << '\n';
            continue;
        }
        EXPECT_EQ(together.tally(), sum) << word_of(kind);
    }
}

INSTANTIATE_TEST_SUITE_P(All, IoFaults,
                         ::testing::Combine(::testing::Range(std::size_t{0}, faults().size()),
                                            ::testing::ValuesIn(fault_backends())),
                         [](const auto& each) {
                             return std::string(faults()[std::get<0>(each.param)].name) + "_" +
                                    word_of(std::get<1>(each.param));
                         });

}  // namespace
}  // namespace penstock::aio
