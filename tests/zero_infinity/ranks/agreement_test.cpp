#include "zero_infinity/ranks/agreement.h"

#include "tests/seeds.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "zero_infinity/ranks/collectives.h"

#include <gtest/gtest.h>

#include <random>

namespace penstock::testing {
namespace {

using zero::AgreedValues;

std::vector<std::string> told_to(const std::vector<AgreedValues>& of_ranks) {
    const auto ranks = static_cast<std::uint32_t>(of_ranks.size());
    ThreadRanks world(ranks);
    return run_ranks(ranks, [&](std::uint32_t rank) {
        zero::Collectives communicator(world.of(rank));
        zero::agree(communicator, of_ranks[rank]);
    });
}

TEST(Agreement, SaysWhoDiffersInWhatOnAllRanks) {
    const AgreedValues usual{"worker-1", {{"memory.host_budget", "16 GiB"}, {"torch", "2.11.0"}}};
    const AgreedValues other{"worker-2", {{"torch", "2.8.0"}, {"memory.host_budget", "8 GiB"}}};
    for (const std::string& each : told_to({usual, usual, usual, other}))
        EXPECT_EQ(
            each,
            "the processes do not train the same: rank 3 (worker-2) differs: memory.host_budget 8 GiB, the others "
            "have 16 GiB; torch 2.8.0, the others have 2.11.0");
}

TEST(Agreement, TheSameInAnotherOrderIsTheSame) {
    const AgreedValues one{"a", {{"x", "1"}, {"y", "2"}}};
    const AgreedValues turned{"b", {{"y", "2"}, {"x", "1"}}};
    EXPECT_EQ(told_to({one, turned, one}), std::vector<std::string>(3));
    EXPECT_EQ(told_to({one}), std::vector<std::string>(1));
    EXPECT_EQ(told_to({{}, {}}), std::vector<std::string>(2));
}

TEST(Agreement, APartyThatIsLargerIsTheOthers) {
    const auto of = [](const char* host, const char* value) { return AgreedValues{host, {{"seed", value}}}; };
    EXPECT_EQ(zero::disagreement(std::vector{of("a", "1"), of("a", "2"), of("b", "2")}),
              "rank 0 (a) differs: seed 1, the others have 2");
    EXPECT_EQ(zero::disagreement(std::vector{of("a", "1"), of("b", "2")}),
              "rank 1 (b) differs: seed 2, the other has 1");
    EXPECT_EQ(zero::disagreement(std::vector{of("a", "1"), of("b", "2"), of("c", "3"), of("d", "1")}),
              "rank 1 (b) differs: seed 2, most others have 1. rank 2 (c) differs: seed 3, most others have 1");
    EXPECT_EQ(zero::disagreement(std::vector{of("a", "1"), of("a", "1"), of("a", "1"), of("b", "2"), of("b", "2")}),
              "ranks 3 (b), 4 (b) differ: seed 2, the others have 1");
}

// "a" = "bc" is not "ab" = "c", and what is not there is not what is empty.
TEST(Agreement, TextsEndWhereTheyEnd) {
    for (const std::string& each : told_to({{"a", {{"a", "bc"}}}, {"b", {{"ab", "c"}}}}))
        EXPECT_EQ(
            each,
            "the processes do not train the same: rank 1 (b) differs: a nothing, the other has bc; ab c, the other has "
            "nothing");
    for (const std::string& each : told_to({{"a", {{"x", ""}}}, {"b", {}}})) EXPECT_NE(each, "");
}

// Random values: told exactly where two ranks differ, and the same on all.
TEST(Agreement, IsToldWhereTwoRanksDifferAndNowhereElse) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(100); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        std::vector<AgreedValues> of_ranks(1 + random() % 4);
        bool differ = false;
        for (AgreedValues& each : of_ranks) {
            each.host = "host" + std::to_string(random() % 2);
            for (int name = 0; name < 4; ++name)
                each.values.push_back({"name" + std::to_string(name), random() % 12 == 0 ? "b" : "a"});
            std::shuffle(each.values.begin(), each.values.end(), random);
        }
        for (int name = 0; name < 4; ++name) {
            std::vector<std::string> found;
            for (const AgreedValues& each : of_ranks)
                for (const zero::AgreedValue& value : each.values)
                    if (value.name == "name" + std::to_string(name)) found.push_back(value.value);
            differ = differ || std::adjacent_find(found.begin(), found.end(), std::not_equal_to<>()) != found.end();
        }
        const auto told = told_to(of_ranks);
        for (const std::string& each : told) {
            ASSERT_EQ(each.empty(), !differ) << each;
            ASSERT_EQ(each, told.front());
        }
    }
}

}  // namespace
}  // namespace penstock::testing
