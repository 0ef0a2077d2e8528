#include "zero_infinity/ranks/communicator.h"

#include "tests/zero_infinity/ranks/recording_communicator.h"
#include "zero_infinity/ranks/commit_barrier.h"

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

// One of three ranks, whose others have said their numbers already.
class OneOfThree final : public zero::Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 1; }
    std::uint32_t ranks() const noexcept override { return 3; }
    void all_gather(std::span<const std::byte> shard, std::span<std::byte> all) override {
        const std::array<std::uint64_t, 3> numbers{others[0], 0, others[1]};
        std::memcpy(all.data(), numbers.data(), all.size());
        std::memcpy(all.data() + shard.size(), shard.data(), shard.size());
    }
    void reduce_scatter(std::span<const std::byte>, zero::PlaneType, std::span<std::byte>) override {}
    void all_reduce(std::span<double>) override {}
    void broadcast(std::span<std::byte>, std::uint32_t) override {}
    void barrier() override {}
    std::array<std::uint64_t, 2> others{};
};

// A double would hold none of these.
TEST(Communicator, TheLargestNumberIsAgreedOnExactly) {
    OneOfThree ranks;
    constexpr std::uint64_t now = 1'790'000'000'123'456'789;
    ranks.others = {now + 1, now - 1};
    EXPECT_EQ(agree_on_largest(ranks, now), now + 1);
    EXPECT_EQ(agree_on_largest(ranks, now + 2), now + 2);
}

TEST(CommitBarrier, AWriteAfterACommitWaitsForAllRanksUnlessACollectiveHas) {
    RecordingCommunicator communicator;
    zero::CommitBarrier barrier(communicator);
    const auto barriers = [&] { return communicator.log.size(); };
    barrier.before_write();
    EXPECT_EQ(barriers(), 1U) << "at the start nobody knows what the others have";
    barrier.before_write();
    EXPECT_EQ(barriers(), 1U) << "once for each commit";
    barrier.committed();
    barrier.joined();
    barrier.before_write();
    EXPECT_EQ(barriers(), 1U) << "the norm came between";
    barrier.committed();
    barrier.before_write();
    EXPECT_EQ(barriers(), 2U) << "nothing came between";
    barrier.joined();
    barrier.committed();
    barrier.before_write();
    EXPECT_EQ(barriers(), 3U) << "what came before the commit says nothing of it";
    EXPECT_EQ(communicator.log, (std::vector<std::string>(3, "barrier")));
}

}  // namespace
}  // namespace penstock::testing
