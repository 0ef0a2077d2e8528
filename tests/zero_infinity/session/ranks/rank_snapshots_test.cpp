// Snapshots of a run of several ranks: one of each, gone on from together.
#include "tests/zero_infinity/session/ranks/rank_lives.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace penstock::testing {
namespace {

class RankSnapshots : public RankSetTest {
   protected:
    // Trains to step 2, a snapshot, and to step 4 while it is copied; or without commits.
    void make(const std::string& snapshot, std::uint64_t steps = 2) {
        course_.setting.snapshots = true;
        ThreadRanks control(course_.ranks), bulk(course_.ranks);
        const auto thrown = run_ranks(course_.ranks, [&](std::uint32_t rank) {
            Client client(run(), course_.setting, {.ranks = {&control.of(rank), &bulk.of(rank)}});
            train_rank(client, course_, client.steps() + 1, client.steps() + steps, rank);
            client.session().begin_snapshot(snapshot);
            train_rank(client, course_, client.steps() + 1, client.steps() + 2, rank);
            client.session().finish_snapshot({});
            for (const zero::EndedSnapshot& each : client.session().take_snapshots())
                EXPECT_FALSE(each.problem) << *each.problem;
        });
        EXPECT_EQ(thrown, std::vector<std::string>(course_.ranks));
    }
};

TEST_F(RankSnapshots, AreGoneOnFromInTheRunItselfAndInAnother) {
    for (const std::uint32_t ranks : {2U, 3U}) {
        course_.ranks = ranks;
        const std::string snapshot = run() + fmt::format(".kept-{}", ranks);
        std::filesystem::remove_all(run());
        make(snapshot);
        course_.setting.resume_from = snapshot;
        for (const bool elsewhere : {false, true}) {
            if (elsewhere) std::filesystem::remove_all(run());
            EXPECT_EQ(live(3, 4, holds_after(4)), std::vector<std::string>(ranks));
            EXPECT_EQ(live(5, 5, holds_after(5)), std::vector<std::string>(ranks)) << "its own newest commit";
        }
        course_.setting = {};
    }
}

// A kill within the copying: one rank has committed what it copied, the other has not.
TEST_F(RankSnapshots, ACopyThatDidNotEndOnAllRanksIsMadeAgain) {
    const std::string snapshot = run() + ".kept";
    make(snapshot);
    for (const std::uint32_t behind : {0U, 1U}) {
        course_.setting.resume_from.clear();
        std::filesystem::remove_all(run());
        EXPECT_EQ(live(1, 5), nothing);
        keep(behind, "before");
        course_.setting.resume_from = snapshot;
        EXPECT_EQ(live(3, 2), nothing);
        put_back(behind, "before");
        EXPECT_EQ(live(3, 4, holds_after(4)), nothing) << "rank " << behind << " was behind";
    }
}

TEST_F(RankSnapshots, ThatAreNotOfOneStepAreRefused) {
    const std::string one = run() + ".one", other = run() + ".other";
    make(one);
    make(other);
    std::filesystem::remove_all(one + "/ranks-2/1");
    std::filesystem::copy(other + "/ranks-2/1", one + "/ranks-2/1", std::filesystem::copy_options::recursive);
    course_.setting.resume_from = one;
    std::vector<std::string> thrown = live(1, 1);
    EXPECT_EQ(thrown[0], thrown[1]);
    EXPECT_NE(thrown[0].find("the snapshots of ranks 0 and 1 are not of the same step of one run"), std::string::npos)
        << thrown[0];
    std::filesystem::remove_all(one + "/ranks-2/1");
    std::filesystem::copy(one + "/ranks-2/0", one + "/ranks-2/1", std::filesystem::copy_options::recursive);
    thrown = live(1, 1);
    EXPECT_NE(thrown[0].find("the snapshot of rank 1 of 2 was made by rank 0 of 2"), std::string::npos) << thrown[0];
    std::filesystem::remove_all(run());
    course_.ranks = 3;
    thrown = live(1, 1);
    EXPECT_NE(thrown[0].find(one + " holds what 2 processes committed, and 3 are started"), std::string::npos)
        << thrown[0];
}

}  // namespace
}  // namespace penstock::testing
