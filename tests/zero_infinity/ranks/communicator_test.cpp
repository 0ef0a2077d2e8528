#include "zero_infinity/ranks/communicator.h"

#include "tests/zero_infinity/ranks/one_of_three.h"

#include <gtest/gtest.h>

#include <array>

namespace penstock::testing {
namespace {

TEST(LocalCommunicator, GivesOneRankItsOwnBytesBack) {
    zero::LocalCommunicator alone;
    EXPECT_EQ(alone.partition().rank, 0U);
    EXPECT_EQ(alone.partition().ranks, 1U);
    const std::array<float, 3> mine{1.5F, -0.0F, 3.0F};
    std::array<float, 3> gathered{};
    alone.all_gather("a gather", std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(gathered)));
    EXPECT_EQ(gathered, mine);
    EXPECT_TRUE(std::signbit(gathered[1]));
    alone.all_gather("in its place", std::as_bytes(std::span(gathered)), std::as_writable_bytes(std::span(gathered)));
    alone.all_gather("nothing", {}, {});
    EXPECT_EQ(gathered, mine);
}

TEST(LocalCommunicatorDeathTest, SizesThatDoNotFitAreAContractViolation) {
    zero::LocalCommunicator alone;
    std::array<std::byte, 8> bytes{};
    EXPECT_DEATH(alone.all_gather("a gather", std::span(bytes).first(4), bytes), "4 bytes for 8");
}

// A double would hold none of these.
TEST(Communicator, TheLargestNumberIsAgreedOnExactly) {
    OneOfThree ranks;
    constexpr std::uint64_t now = 1'790'000'000'123'456'789;
    ranks.others = {now + 1, now - 1};
    EXPECT_EQ(agree_on_largest(ranks, "a number", now), now + 1);
    EXPECT_EQ(agree_on_largest(ranks, "a number", now + 2), now + 2);
}

}  // namespace
}  // namespace penstock::testing
