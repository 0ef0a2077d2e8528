// Watches of several ranks over one board, each with its thread: who ends by what, and who says it.
#include "zero_infinity/ranks/watch/watch.h"

#include "tests/seeds.h"
#include "tests/zero_infinity/ranks/thread_ranks.h"
#include "tests/zero_infinity/ranks/watch/memory_board.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <random>
#include <thread>

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;
using zero::Beat;
using zero::BeatTimes;
using zero::RunEnd;
using zero::Watch;

// Seconds of the usual ones are hundredths here; a deadline is long where nobody is to be silent.
constexpr BeatTimes quick{.beat = 10ms, .deadline = 20s, .doubt = 150ms, .arrival = 20s};
constexpr BeatTimes impatient{.beat = 10ms, .deadline = 300ms, .doubt = 150ms, .arrival = 600ms};

const Error full(ExitCode::storage, "storage: /nvme/weights: no space left");
const Error closed(ExitCode::peer_lost, "connection closed by peer");

// A rank and what its watch has told it.
class WatchedRank {
   public:
    WatchedRank(zero::Board& board, std::uint32_t rank, std::uint32_t ranks, BeatTimes times = quick,
                std::chrono::nanoseconds linger = 200ms)
        : watch_(std::make_unique<Watch>(board,
                                         zero::WatchOptions{.rank = rank,
                                                            .ranks = ranks,
                                                            .host = "host-" + std::to_string(rank),
                                                            .times = times,
                                                            .linger = linger},
                                         [this](const RunEnd& end) { note(end); })) {}

    Watch& watch() { return *watch_; }
    void close() { watch_.reset(); }
    std::optional<RunEnd> told_within(std::chrono::nanoseconds time) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, time, [&] { return told_.has_value(); });
        return told_;
    }
    RunEnd told() { return told_within(20s).value_or(RunEnd{{0, 0, "", "nothing came"}, false}); }
    int times_told() {
        const std::lock_guard lock(mutex_);
        return times_told_;
    }

   private:
    void note(const RunEnd& end) {
        const std::lock_guard lock(mutex_);
        told_ = end;
        ++times_told_;
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<RunEnd> told_;
    int times_told_ = 0;
    std::unique_ptr<Watch> watch_;
};

using WatchedRanks = std::vector<std::unique_ptr<WatchedRank>>;

WatchedRanks ranks_over(zero::Board& board, std::uint32_t ranks, BeatTimes times = quick) {
    WatchedRanks all;
    for (std::uint32_t rank = 0; rank < ranks; ++rank)
        all.push_back(std::make_unique<WatchedRank>(board, rank, ranks, times));
    return all;
}

// Until the rank has come.
void wait_for(MemoryBoard& board, std::uint32_t rank) {
    while (!board.get(zero::beat_key(rank))) std::this_thread::sleep_for(1ms);
}

TEST(Watch, AFailureOfOneRankEndsAllAndIsSaidOnce) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 4);
    const RunEnd own = all[1]->watch().failed(full);
    EXPECT_TRUE(own.is_told_here);
    EXPECT_EQ(own.cause.words(), "rank 1 (host-1): storage: /nvme/weights: no space left");
    for (const auto& each : all) {
        EXPECT_EQ(each->told().cause, own.cause);
        EXPECT_EQ(each->told().is_told_here, each == all[1]);
        EXPECT_EQ(each->watch().ended()->cause, own.cause);
        // The rank fails now by itself, as its calls are aborted.
        EXPECT_EQ(each->watch().failed(Error(ExitCode::peer_lost, "aborted")).cause, own.cause);
        each->watch().finished();
    }
    for (const auto& each : all) EXPECT_EQ(each->times_told(), 1);
}

TEST(Watch, OfAllThatFailAtOnceOneIsTheCause) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(40); ++seed) {
        SCOPED_TRACE(replay(seed));
        MemoryBoard board(seed, 2ms);
        const auto ranks = static_cast<std::uint32_t>(2 + seed % 3);
        const WatchedRanks all = ranks_over(board, ranks);
        std::vector<RunEnd> ends(ranks);
        EXPECT_EQ(run_ranks(ranks,
                            [&](std::uint32_t rank) {
                                const std::string what = "out of rows " + std::to_string(rank);
                                ends[rank] = all[rank]->watch().failed(Error(ExitCode::internal, what));
                            }),
                  std::vector<std::string>(ranks));
        EXPECT_EQ(std::ranges::count(ends, true, &RunEnd::is_told_here), 1);
        for (const RunEnd& each : ends) {
            EXPECT_EQ(each.cause, ends[0].cause);
            EXPECT_EQ(each.is_told_here, each.cause.rank == &each - ends.data());
        }
    }
}

TEST(Watch, ASilentRankIsNamedWithWhatItWasIn) {
    MemoryBoard board;
    board.put(zero::beat_key(2),
              board_text(Beat{
                  .state = Beat::State::on, .number = 7, .host = "worker-2", .at = "call 1312, gather of blocks.7"}));
    WatchedRank zero(board, 0, 3, impatient), one(board, 1, 3, impatient);
    const RunEnd told = zero.told();
    EXPECT_EQ(told.cause, one.told().cause);
    EXPECT_EQ(told.cause.words(), "rank 2 (worker-2): silent for 0 s; it was in call 1312, gather of blocks.7");
    EXPECT_NE(told.is_told_here, one.told().is_told_here);
    // When it comes again, it finds what the others have said of it.
    WatchedRank two(board, 2, 3);
    EXPECT_EQ(two.told().cause, told.cause);
    EXPECT_FALSE(two.told().is_told_here);
}

TEST(Watch, ARankThatDoesNotComeIsNamed) {
    MemoryBoard board;
    WatchedRank zero(board, 0, 2, impatient);
    EXPECT_EQ(zero.told().cause.words(), "rank 1: it has not come within 0 s");
}

TEST(Watch, SlowIsNotSilentAndFinishedIsNotEither) {
    MemoryBoard board(3, 20ms);  // a look takes several beats
    const WatchedRanks all = ranks_over(board, 3, impatient);
    all[2]->watch().finished();
    all[2]->close();
    EXPECT_FALSE(all[0]->told_within(800ms));
    EXPECT_FALSE(all[1]->told_within(0ms));
    for (const int rank : {0, 1}) all[rank]->watch().finished();
}

TEST(Watch, WhatARankSaysOfItselfIsWhatOthersSayOfIt) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 2);
    const auto at = [&]() -> std::string {
        const auto text = board.get(zero::beat_key(1));
        return text ? zero::beat_of(*text).value_or(Beat{}).at : "";
    };
    all[1]->watch().at("call 12, reduce of blocks.6");
    for (int turn = 0; turn < 500 && at().empty(); ++turn) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(at(), "call 12, reduce of blocks.6");
    for (const auto& each : all) each->watch().finished();
}

TEST(Watch, AConnectionThatClosesIsPutDownToWhoIsGone) {
    MemoryBoard board;
    board.put(zero::beat_key(1),
              board_text(Beat{.state = Beat::State::on, .number = 9, .host = "worker-2", .at = "step 3"}));
    WatchedRank zero(board, 0, 3), two(board, 2, 3);
    std::vector<RunEnd> ends(2);
    run_ranks(2, [&](std::uint32_t rank) { ends[rank] = (rank == 0 ? zero : two).watch().failed(closed); });
    EXPECT_EQ(ends[0].cause, ends[1].cause);
    EXPECT_NE(ends[0].is_told_here, ends[1].is_told_here);
    EXPECT_EQ(ends[0].cause.rank, 1U);
    EXPECT_EQ(ends[0].cause.what, "silent for 0 s; it was in step 3; rank " + std::to_string(ends[0].cause.by) +
                                      " found: connection closed by peer");
}

TEST(Watch, WhyAConnectionClosedComesFromWhoHasClosedIt) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 2);
    std::thread closes([&] {
        std::this_thread::sleep_for(50ms);
        EXPECT_TRUE(all[1]->watch().failed(full).is_told_here);
    });
    const RunEnd end = all[0]->watch().failed(closed);
    closes.join();
    EXPECT_EQ(end.cause.words(), "rank 1 (host-1): storage: /nvme/weights: no space left");
    EXPECT_FALSE(end.is_told_here);
}

TEST(Watch, AConnectionThatClosesWhileAllBeatIsTheCause) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 2);
    const RunEnd end = all[0]->watch().failed(closed);
    EXPECT_EQ(end.cause.words(), "rank 0 (host-0): connection closed by peer");
    EXPECT_EQ(all[1]->told().cause, end.cause);
}

TEST(Watch, BehindItsEndNothingEndsARank) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 2);
    all[0]->watch().finished();
    EXPECT_TRUE(all[1]->watch().failed(full).is_told_here);
    EXPECT_FALSE(all[0]->told_within(100ms));
    EXPECT_TRUE(all[0]->watch().failed(closed).is_told_here) << "what fails behind the end is its own";
    EXPECT_FALSE(all[0]->watch().ended());
}

TEST(Watch, OneThatIsClosedUnfinishedEndsTheOthers) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 2);
    all[1]->close();
    EXPECT_EQ(all[1]->times_told(), 0);
    EXPECT_EQ(all[0]->told().cause.words(), "rank 1 (host-1): its training was closed before it was finished");
}

TEST(Watch, OfALostBoardSpeaksTheFirstRankBehindItsHost) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 4);
    all[1]->watch().finished();
    all[0]->watch().at("step 7");
    for (const auto& key : {zero::beat_key(2), zero::beat_key(3)})
        while (!board.get(key)) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(300ms);  // all have seen that rank 1 is at its end, and where rank 0 is
    board.lose();
    for (const int rank : {0, 2, 3}) EXPECT_EQ(all[rank]->told().is_told_here, rank == 2) << rank;
    EXPECT_EQ(
        all[3]->told().cause.words(),
        "rank 0 (host-0): the board is lost that mostly goes with it: connection reset by the board's host; rank 0 "
        "was in step 7");
}

TEST(Watch, OfALostBoardARankSaysWhatIsItsOwn) {
    MemoryBoard board;
    WatchedRank three(board, 3, 4, BeatTimes{.beat = 1h});
    while (board.calls() < 4) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);  // its first look is over
    board.lose();
    const RunEnd end = three.watch().failed(full);
    EXPECT_TRUE(end.is_told_here);
    EXPECT_EQ(end.cause.words(), "rank 3 (host-3): storage: /nvme/weights: no space left");

    MemoryBoard other;
    const WatchedRanks all = ranks_over(other, 4);
    std::this_thread::sleep_for(50ms);
    other.lose();
    int told = 0;
    for (const auto& each : all) told += each->watch().failed(closed).is_told_here ? 1 : 0;
    EXPECT_EQ(told, 1);
}

TEST(Watch, ABoardThatGoesWithARank0ThatHasFinishedEndsNobody) {
    MemoryBoard board;
    const WatchedRanks all = ranks_over(board, 3);
    for (const std::uint32_t other : {1, 2}) wait_for(board, other);  // as at the end of a training
    all[0]->watch().finished();
    all[0]->close();  // lingers, and the others see how it has ended
    board.lose();
    EXPECT_FALSE(all[1]->told_within(100ms));
    EXPECT_TRUE(all[1]->watch().failed(full).is_told_here);
    all[2]->watch().finished();
    EXPECT_FALSE(all[2]->watch().ended());
}

TEST(Watch, Rank0StaysUntilTheOthersHaveReadHowItEnded) {
    for (const bool is_read : {true, false}) {
        MemoryBoard board;
        std::unique_ptr<WatchedRank> zero, one;
        zero = std::make_unique<WatchedRank>(board, 0, 2, quick, 1s);
        if (is_read)
            one = std::make_unique<WatchedRank>(board, 1, 2, BeatTimes{.beat = 200ms});
        else
            board.put(zero::beat_key(1), board_text(Beat{}));  // it is stopped
        wait_for(board, 1);
        zero->watch().failed(full);
        const auto begin = std::chrono::steady_clock::now();
        zero.reset();
        const auto stayed = std::chrono::steady_clock::now() - begin;
        if (is_read) {
            EXPECT_TRUE(one->told_within(0ms)) << "the board is gone, and rank 1 has not read it";
            EXPECT_LT(stayed, 900ms);
        } else {
            EXPECT_GE(stayed, 1s);
            EXPECT_LT(stayed, 3s);
        }
    }
}

TEST(Watch, CostsAFewCallsASecondHoweverManyRanksThereAre) {
    MemoryBoard board;
    for (std::uint32_t rank = 0; rank < 64; ++rank)
        board.put(zero::beat_key(rank), board_text(Beat{.state = Beat::State::on, .number = 1, .host = "", .at = ""}));
    const std::uint64_t before = board.calls();
    WatchedRank forty(board, 40, 64, BeatTimes{.beat = 1h});
    while (board.calls() < before + 6) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(board.calls(), before + 6) << "its beat, the cause, and four beats of others";
    forty.watch().finished();
}

// Whatever happens at once: each rank comes to its end, and one says why.
class Mayhem {
   public:
    explicit Mayhem(std::uint64_t seed)
        : random_(seed), board_(seed, 1ms), all_(ranks_over(board_, static_cast<std::uint32_t>(2 + random_() % 4))) {}

    void run() {
        const auto ranks = static_cast<std::uint32_t>(all_.size());
        const std::uint64_t seed = random_();
        if (random_() % 4 == 0) lost_at_ = 1 + random_() % 100;
        ends_.resize(ranks);
        EXPECT_EQ(run_ranks(ranks, [&](std::uint32_t rank) { live(rank, mix(seed + rank)); }),
                  std::vector<std::string>(ranks));
        judge();
    }

   private:
    enum Event { fails, loses_connection, is_closed, works };

    void live(std::uint32_t rank, std::uint64_t seed) {
        WatchedRank& self = *all_[rank];
        std::mt19937_64 random(seed);
        const auto event = static_cast<Event>(random() % 4);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
        self.watch().at("event " + std::to_string(event));
        if (board_.calls() >= lost_at_) board_.lose();
        if (event == fails || event == loses_connection)
            ends_[rank] = self.watch().failed(event == fails ? full : closed);
        if (event == works && !self.told_within(1ms)) self.watch().finished();
        if (event == works) ends_[rank] = self.watch().ended();
        if (random() % 2 == 0 || event == is_closed) self.close();
    }
    void judge() {
        const bool is_lost = board_.calls() >= lost_at_;
        std::optional<zero::EndCause> cause;
        int told = 0;
        for (const auto& end : ends_) {
            if (!end) continue;
            told += end->is_told_here ? 1 : 0;
            EXPECT_TRUE(is_lost || !cause || cause == end->cause) << cause->words() << ", " << end->cause.words();
            cause = end->cause;
        }
        EXPECT_TRUE(is_lost || told <= 1) << told;
    }

    std::mt19937_64 random_;
    MemoryBoard board_;
    WatchedRanks all_;
    std::uint64_t lost_at_ = ~std::uint64_t{0};
    std::vector<std::optional<RunEnd>> ends_;
};

TEST(Watch, WhateverHappensAtOnceAllEndAndOneSaysWhy) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(25); ++seed) {
        SCOPED_TRACE(replay(seed));
        Mayhem(seed).run();
    }
}

}  // namespace
}  // namespace penstock::testing
