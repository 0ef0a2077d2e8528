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
    std::array<float, 3> gathered{}, reduced{};
    alone.all_gather(std::as_bytes(std::span(mine)), std::as_writable_bytes(std::span(gathered)));
    alone.reduce_scatter(std::as_bytes(std::span(mine)), zero::PlaneType::fp32,
                         std::as_writable_bytes(std::span(reduced)));
    EXPECT_EQ(gathered, mine);
    EXPECT_EQ(reduced, mine);
    EXPECT_TRUE(std::signbit(reduced[1]));
    alone.all_gather(std::as_bytes(std::span(gathered)), std::as_writable_bytes(std::span(gathered)));  // in its place
    alone.all_gather({}, {});
    std::array<double, 2> sums{0.1, -0.0};
    alone.all_reduce(sums);
    EXPECT_EQ(sums[0], 0.1);
    EXPECT_TRUE(std::signbit(sums[1]));
    alone.broadcast(std::as_writable_bytes(std::span(gathered)), 0);
    alone.barrier();
    EXPECT_EQ(gathered, mine);
}

TEST(LocalCommunicatorDeathTest, SizesThatDoNotFitAreAContractViolation) {
    zero::LocalCommunicator alone;
    std::array<std::byte, 8> bytes{};
    EXPECT_DEATH(alone.all_gather(std::span(bytes).first(4), bytes), "4 bytes for 8");
    EXPECT_DEATH(alone.reduce_scatter(std::span(bytes).first(3), zero::PlaneType::bf16, std::span(bytes).first(3)),
                 "no whole elements");
    EXPECT_DEATH(alone.broadcast(bytes, 1), "root 1");
}

// A double would hold none of these.
TEST(Communicator, TheLargestNumberIsAgreedOnExactly) {
    OneOfThree ranks;
    constexpr std::uint64_t now = 1'790'000'000'123'456'789;
    ranks.others = {now + 1, now - 1};
    EXPECT_EQ(agree_on_largest(ranks, now), now + 1);
    EXPECT_EQ(agree_on_largest(ranks, now + 2), now + 2);
}

}  // namespace
}  // namespace penstock::testing
