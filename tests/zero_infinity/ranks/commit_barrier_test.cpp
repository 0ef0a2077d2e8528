#include "zero_infinity/ranks/commit_barrier.h"

#include "tests/refusal.h"
#include "tests/zero_infinity/ranks/one_of_three.h"
#include "tests/zero_infinity/ranks/recording_communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace penstock::testing {
namespace {

using Numbers = std::array<std::uint64_t, 3>;

// One rank is told nothing by others either: it asks as several do, so that several are asked as often.
TEST(CommitBarrier, AWriteAfterACommitGathersUnlessACollectiveHas) {
    RecordingCommunicator communicator;
    zero::CommitBarrier barrier(communicator);
    const auto gathers = [&] { return communicator.log.size(); };
    const auto hear = [&] { barrier.heard(std::array{barrier.mine()}); };
    barrier.committed(4);
    barrier.before_write(5);
    EXPECT_EQ(gathers(), 1U) << "at the start nobody knows what the others have";
    barrier.before_write(5);
    EXPECT_EQ(gathers(), 1U) << "once for each commit";
    barrier.committed(5);
    hear();
    barrier.before_write(6);
    EXPECT_EQ(gathers(), 1U) << "the norm came between";
    barrier.committed(6);
    barrier.before_write(7);
    EXPECT_EQ(gathers(), 2U) << "nothing came between";
    hear();
    barrier.committed(7);
    barrier.before_write(8);
    EXPECT_EQ(gathers(), 3U) << "what came before the commit says nothing of it";
    EXPECT_EQ(communicator.log, (std::vector<std::string>(3, "what is committed")));
}

TEST(CommitBarrier, TheRankThatIsBehindKeepsAllFromWriting) {
    OneOfThree ranks;
    zero::CommitBarrier barrier(ranks);
    barrier.committed(6);
    EXPECT_FALSE(barrier.may_write(1)) << "nobody has said anything";
    barrier.heard(Numbers{6, 6, 5});
    EXPECT_TRUE(barrier.may_write(6));
    EXPECT_FALSE(barrier.may_write(7));
    ranks.others = {6, 6};  // it has committed, too, by the time it joins
    barrier.before_write(7);
    EXPECT_EQ(ranks.gathers, 1);
    EXPECT_TRUE(barrier.may_write(7));
    barrier.heard(Numbers{5, 6, 6});
    EXPECT_TRUE(barrier.may_write(7)) << "what is committed stays so";
}

// The answer of all ranks is one, whatever this one has done meanwhile.
TEST(CommitBarrier, TheOwnCommitAloneChangesNoAnswer) {
    OneOfThree ranks;
    zero::CommitBarrier barrier(ranks);
    for (const std::uint64_t own : {6, 7, 8}) {
        barrier.committed(own);
        barrier.heard(Numbers{6, 6, 6});
        EXPECT_TRUE(barrier.may_write(7));
        EXPECT_FALSE(barrier.may_write(8));
    }
}

TEST(CommitBarrier, ARankAtAnotherStepIsNamed) {
    OneOfThree ranks;
    zero::CommitBarrier barrier(ranks);
    barrier.committed(6);
    ranks.others = {6, 4};
    EXPECT_EQ(refusal_of(ExitCode::usage, [&] { barrier.before_write(7); }),
              "rank 2 has committed generation 4 where rank 1 has committed 6: the ranks do not make the same steps. "
              "Let all of them make the same calls in the same order.");
}

TEST(CommitBarrierDeathTest, AGenerationIsWrittenAfterTheOneBefore) {
    OneOfThree ranks;
    zero::CommitBarrier barrier(ranks);
    barrier.committed(6);
    EXPECT_DEATH(barrier.before_write(8), "generation 8 is written after 6");
    EXPECT_DEATH(barrier.heard(std::array<std::uint64_t, 2>{6, 6}), "2 numbers of 3 ranks");
}

}  // namespace
}  // namespace penstock::testing
