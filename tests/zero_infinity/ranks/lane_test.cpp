// The lane of a rank: random programs over ranks that are threads with moods of their own, and what ends them.
#include "zero_infinity/ranks/lane.h"

#include "tests/seeds.h"
#include "tests/zero_infinity/ranks/lane_program.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

namespace penstock::testing {
namespace {

using zero::Inputs;
using zero::Lane;
using zero::PlaneType;
using zero::ReduceCall;
using zero::SumStart;
using Floats = std::vector<float>;

// Two worlds, as a session has two communicators.
struct Worlds {
    explicit Worlds(std::uint32_t ranks, ThreadMoods bulk_moods = {}, ThreadMoods control_moods = {})
        : bulk(ranks, bulk_moods), control(ranks, control_moods) {}
    ThreadRanks bulk, control;
};

std::span<const std::byte> bytes_of(const Floats& values) {
    return std::as_bytes(std::span(values));
}
std::span<std::byte> bytes_of(Floats& values) {
    return std::as_writable_bytes(std::span(values));
}

ThreadMoods moods(std::uint64_t seed) {
    return {.seed = seed, .most_delay = std::chrono::microseconds(seed % 4 == 0 ? 0 : 80)};
}

TEST(Lane, RandomProgramsGiveTheirSumsWhateverTheMoods) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(100); ++seed) {
        SCOPED_TRACE(replay(seed));
        const auto ranks = static_cast<std::uint32_t>(1 + mix(seed) % 5);
        const std::vector<LaneStep> steps = lane_program(mix(seed));
        Worlds worlds(ranks, moods(seed), moods(seed + 1));
        const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
            run_lane_program(worlds.bulk.of(rank), worlds.control.of(rank), steps, seed);
        });
        ASSERT_EQ(thrown, std::vector<std::string>(ranks));
        ASSERT_EQ(worlds.bulk.mismatch() + worlds.control.mismatch(), "");
    }
    fmt::print("RESULT lanes: {} random programs of 1 to 5 ranks, whatever the moods: their sums\n", seed_count(100));
}

// The first difference is named on every rank before a byte of it is sent.
TEST(Lane, RanksThatCallOtherThingsAreToldWhoCallsWhat) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(40); ++seed) {
        SCOPED_TRACE(replay(seed));
        const auto ranks = static_cast<std::uint32_t>(2 + mix(seed) % 3);
        const std::vector<LaneStep> steps = lane_program(mix(seed));
        const auto strange = static_cast<std::uint32_t>(mix(seed + 5) % ranks);
        const std::size_t at = mix(seed + 6) % steps.size();
        Worlds worlds(ranks, moods(seed), moods(seed + 1));
        const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
            std::vector<LaneStep> own = steps;
            if (rank == strange) own[at].numel += 1 + mix(seed) % 5;
            run_lane_program(worlds.bulk.of(rank), worlds.control.of(rank), own, seed);
        });
        for (const std::string& each : thrown) {
            ASSERT_NE(each.find("not at the same call (number " + std::to_string(at + 1)), std::string::npos) << each;
            ASSERT_EQ(each, thrown.front());
        }
        ASSERT_EQ(worlds.bulk.mismatch() + worlds.control.mismatch(), "") << "nothing of it was sent";
    }
    fmt::print(
        "RESULT lanes_that_differ: {} programs of 2 to 4 ranks, one of which calls something else: all ended by "
        "the same words\n",
        seed_count(40));
}

TEST(Lane, ADifferenceIsToldInTheWordsOfTheUnits) {
    Worlds worlds(3);
    const Floats in(2);
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        Floats gathered(6);
        RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
        if (rank == 1)
            own.lane.wait(own.lane.post_small("the norm", bytes_of(in), bytes_of(gathered)));
        else
            own.lane.wait(own.lane.post_gather(2, {bytes_of(in), bytes_of(gathered)}, Inputs::there));
    });
    for (const std::string& each : thrown)
        EXPECT_EQ(
            each,
            "the ranks are not at the same call (number 1 of this session): ranks 0, 2 with the weights of blocks.1 "
            "(8 bytes a rank); rank 1 with the norm (8 bytes a rank). All ranks must make the same visits, updates "
            "and reads in the same order");
}

// Types and beginnings are not bytes: they would give other sums in silence.
TEST(Lane, ReducesOfOtherFormsAreDifferent) {
    const std::function<void(ReduceCall&)> changes[] = {[](ReduceCall& call) { call.start = SumStart::carried; },
                                                        [](ReduceCall& call) { call.type = PlaneType::bf16; },
                                                        [](ReduceCall& call) { call.wire = PlaneType::bf16; }};
    for (const auto& change : changes) {
        Worlds worlds(2);
        const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
            RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
            ReduceCall call;  // of no elements: nothing but its form differs
            if (rank == 1) change(call);
            own.lane.post_reduce(0, call, Inputs::there);
            own.lane.finish();
        });
        for (const std::string& each : thrown) EXPECT_NE(each.find("not at the same call"), std::string::npos) << each;
    }
}

// What was the same in all but what came before is a later place of two programs that have parted.
TEST(Lane, ADifferenceOfTheTextIsFoundToo) {
    Worlds worlds(2);
    const Floats in(1);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Floats all(2);
        RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
        own.lane.wait(own.lane.post_small(rank == 0 ? "the norm" : "the loss", bytes_of(in), bytes_of(all)));
    });
    for (const std::string& each : thrown) EXPECT_NE(each.find("the loss"), std::string::npos) << each;
}

TEST(Lane, ARankThatIsLostEndsAllWaits) {
    const std::uint64_t first = first_seed();
    std::uint64_t ended = 0;
    for (std::uint64_t seed = first; seed < first + seed_count(40); ++seed) {
        SCOPED_TRACE(replay(seed));
        const std::uint32_t ranks = 2 + static_cast<std::uint32_t>(mix(seed) % 3);
        const std::vector<LaneStep> steps = lane_program(mix(seed));
        const Mishap mishap{mix(seed) % 2 == 0 ? Mishap::Kind::dies : Mishap::Kind::stops,
                            static_cast<std::uint32_t>(mix(seed + 1) % ranks), 1 + mix(seed + 2) % 12};
        ThreadMoods dying = moods(seed);
        dying.mishap = mishap;
        dying.deadline = std::chrono::milliseconds(60);
        Worlds worlds = seed % 2 == 0 ? Worlds(ranks, dying) : Worlds(ranks, {}, dying);
        const auto thrown = run_ranks(ranks, [&](std::uint32_t rank) {
            run_lane_program(worlds.bulk.of(rank), worlds.control.of(rank), steps, seed);
        });
        const auto failed =
            static_cast<std::uint32_t>(std::ranges::count_if(thrown, [](auto& each) { return !each.empty(); }));
        ASSERT_TRUE(failed == 0 || failed == ranks) << "all, or the program ended before";
        ended += failed > 0 ? 1 : 0;
    }
    fmt::print(
        "RESULT lanes_that_are_lost: {} programs of 2 to 4 ranks, one of which dies or stops: {} ended by it, "
        "all ranks together\n",
        seed_count(40), ended);
}

TEST(Lane, TheFirstCauseIsWhatEveryWaitThrows) {
    Worlds worlds(2);
    const Floats in(1);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Floats gathered(2), all(2);
        RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
        const Lane::Number made = own.lane.post_small("before", bytes_of(in), bytes_of(all));
        own.lane.wait(made);
        const Lane::Number number =
            own.lane.post_gather(0, {bytes_of(in), bytes_of(gathered)}, rank == 0 ? Inputs::from_other : Inputs::there);
        if (rank == 0) own.lane.fail(Error(ExitCode::storage, "the drive is gone"));
        if (rank == 0) own.lane.fail(Error(ExitCode::internal, "the second cause"));
        EXPECT_NO_THROW(own.lane.wait(made)) << "it was made";
        EXPECT_NO_THROW(EXPECT_TRUE(own.lane.done(made)));
        own.lane.wait(number);
    });
    EXPECT_EQ(thrown, (std::vector<std::string>{"the drive is gone", "a rank is lost"}));
}

TEST(Lane, CountsWhatCameFromOthers) {
    Worlds worlds(3);
    const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
        const Floats in(50), local(150);
        Floats gathered(150), sum(50), all(150);
        RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
        own.lane.post_gather(0, {bytes_of(in), bytes_of(gathered)}, Inputs::there);
        own.lane.post_small("the norm", bytes_of(in), bytes_of(all));
        own.lane.wait(own.lane.post_reduce(0, {.addend = bytes_of(local), .sum = bytes_of(sum)}, Inputs::there));
        own.lane.wait(2);
        const zero::LaneCounters counted = own.lane.counters();
        EXPECT_EQ(counted.calls, 3U);
        EXPECT_EQ(counted.gathered_bytes, 400U);
        EXPECT_EQ(counted.exchanged_bytes, 400U);
        EXPECT_EQ(worlds.bulk.bytes_received(rank), 800U);
        own.lane.finish();
    });
    EXPECT_EQ(thrown, std::vector<std::string>(3));
}

// Who leaves while others go on is a difference, not a wait for ever; and a good end aborts nobody.
TEST(Lane, AnEndIsAgreedOn) {
    for (const bool early : {false, true}) {
        Worlds worlds(3, moods(1), moods(2));
        const Floats in(1);
        const auto thrown = run_ranks(3, [&](std::uint32_t rank) {
            Floats gathered(3);
            RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
            own.lane.post_gather(0, {bytes_of(in), bytes_of(gathered)}, Inputs::there);
            if (!early || rank != 2) own.lane.post_gather(1, {bytes_of(in), bytes_of(gathered)}, Inputs::there);
            own.lane.finish();
        });
        for (const std::string& each : thrown)
            EXPECT_EQ(each.find("rank 2 with the end") != std::string::npos, early) << each;
    }
}

// Closed without an end: the others need not wait for their deadline.
TEST(Lane, OneThatIsClosedEarlyEndsTheOthers) {
    const ThreadMoods patient{.deadline = std::chrono::minutes(10)};
    Worlds worlds(2, patient, patient);
    const Floats in(1);
    const auto thrown = run_ranks(2, [&](std::uint32_t rank) {
        Floats gathered(2);
        RankLane own(worlds.bulk.of(rank), worlds.control.of(rank));
        if (rank == 1) throw std::runtime_error("a fault of the program");
        own.lane.wait(own.lane.post_gather(0, {bytes_of(in), bytes_of(gathered)}, Inputs::there));
    });
    EXPECT_EQ(thrown, (std::vector<std::string>{"a rank is lost", "a fault of the program"}));
}

using LaneDeathTest = ::testing::Test;

TEST(LaneDeathTest, WhoWaitsMustHaveMadeTheInputsThatAreHisOwn) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto waits = [](bool for_small) {
        Worlds worlds(1);
        const Floats in(1);
        Floats out(1);
        RankLane own(worlds.bulk.of(0), worlds.control.of(0));
        own.lane.post_gather(0, {bytes_of(in), bytes_of(out)}, Inputs::from_owner);
        const Lane::Number small = own.lane.post_small("the norm", bytes_of(in), bytes_of(out));
        const Lane::Number behind = own.lane.post_gather(0, {bytes_of(in), bytes_of(out)}, Inputs::there);
        own.lane.wait(small);  // waits for nobody's inputs
        if (!for_small) own.lane.wait(behind);
    };
    waits(true);
    EXPECT_DEATH(waits(false), "who waits for call 3 must first make the inputs of call 1");
}

}  // namespace
}  // namespace penstock::testing
