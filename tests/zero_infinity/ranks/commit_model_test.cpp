// What a kill leaves, of one rank or of all, at any instant: see commit_model.h.
#include "tests/zero_infinity/ranks/commit_model.h"

#include "tests/refusal.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

namespace penstock::testing {
namespace {

std::string told(const Explored& explored) {
    return explored.wrong.empty() ? "" : fmt::format("{}, after:\n{}", explored.wrong, fmt::join(explored.way, "\n"));
}

void expect_right(const CommitModel& model) {
    const Explored explored = explore(model);
    EXPECT_EQ(told(explored), "");
    fmt::print("{} ranks, {} generations, {} kills, {}: {} states\n", model.ranks, model.generations, model.kills,
               model.small_collectives ? "a small collective in each step" : "no small collectives", explored.states);
}

TEST(CommitModel, EveryOrderLeavesAllRanksOneGeneration) {
    expect_right({.ranks = 2, .generations = 4, .kills = 3});
}

TEST(CommitModel, SoItDoesWhereOnlyWritesAsk) {
    expect_right({.ranks = 2, .generations = 4, .kills = 3, .small_collectives = false});
}

TEST(CommitModel, SoItDoesWithThreeRanks) {
    expect_right({.ranks = 3, .generations = 3, .kills = 2});
}

TEST(CommitModel, OneRankIsNeverKeptFromGoingOn) {
    expect_right({.ranks = 1, .generations = 4, .kills = 3});
}

// ---------------------------------------------------------------- what the model finds

void expect_found(const char* what, const CommitModel& model, const std::string& wrong) {
    const Explored explored = explore(model);
    EXPECT_SAYS(told(explored), wrong);
    fmt::print("{}: found after {} moves and {} states\n", what, explored.way.size(), explored.states);
}

TEST(CommitModel, WithoutTheBarrierAGenerationIsLost) {
    expect_found("writes that do not wait", {.wait_before_writes = false}, "There is no store of rank 1");
}

TEST(CommitModel, TheLargestInThePlaceOfTheLeastMixesGenerations) {
    expect_found("the largest generation", {.take_the_least = false},
                 "rank 1 has generation 0 of incarnation 1, rank 0 1 of 1");
}

// Who erases late is known by the incarnation; and who waits for him need not know it. Each is enough; without both a
// generation is made of two lives.
TEST(CommitModel, WaitingAfterErasingAndComparingIncarnationsStandInForEachOther) {
    EXPECT_EQ(told(explore({.wait_after_erasing = false})), "");
    EXPECT_EQ(told(explore({.compare_incarnations = false})), "");
    expect_found("neither", {.wait_after_erasing = false, .compare_incarnations = false},
                 "rank 1 has generation 1 of incarnation 2, rank 0 1 of 1");
}

}  // namespace
}  // namespace penstock::testing
