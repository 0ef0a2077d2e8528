// The matrix of lies on the product. A failure prints the command that replays the one run.
#include "tests/seeds.h"
#include "tests/swap/store/wrong_data_matrix.h"

#include <gtest/gtest.h>

#include <iostream>

namespace penstock::testing {
namespace {

constexpr std::uint64_t usual_runs = 40;  // of each lie

class WrongData : public ::testing::TestWithParam<std::size_t> {};

// The lies must have been told, and where only reads lie the second read must have helped, or the runs have shown
// nothing.
void expect_struck(const Lie& lie, const WrongDataMatrix::Tally& tally) {
    EXPECT_EQ(tally.struck.wrong_reads > 0, lie.reading.wrong_read > 0);
    EXPECT_EQ(tally.struck.wrong_writes > 0, lie.writing.wrong_write > 0);
    EXPECT_EQ(tally.struck.misdirected > 0, lie.writing.misdirected > 0);
    EXPECT_EQ(tally.struck.lost > 0, lie.writing.lost > 0);
    EXPECT_EQ(tally.read_again > 0, lie.reading.wrong_read > 0);
    const aio::FaultChances& writing = lie.writing;
    EXPECT_EQ(tally.damaged > 0, lie.reading.wrong_read + writing.wrong_write + writing.misdirected + writing.lost > 0);
    EXPECT_LT(tally.damaged, tally.reads);
}

TEST_P(WrongData, IsRightOrRefusedByFileAndOffsetNeverSilent) {
    const Lie& lie = lies()[GetParam()];
    WrongDataMatrix matrix(lie);
    const std::uint64_t first = first_seed();
    const std::uint64_t count = seed_count(usual_runs);
    std::cout << replay(first) << " --runs=" << count << '\n';
    for (std::uint64_t seed = first; seed < first + count && !HasFailure(); ++seed) {
        for (const std::string& complaint : matrix.run(seed)) ADD_FAILURE() << complaint << '\n' << replay(seed);
    }
    if (count >= 10) expect_struck(lie, matrix.tally());
}

INSTANTIATE_TEST_SUITE_P(All, WrongData, ::testing::Range(std::size_t{0}, lies().size()),
                         [](const auto& each) { return std::string(lies()[each.param].name); });

}  // namespace
}  // namespace penstock::testing
