// Who is silent: every set of ranks that can be, and a clock that stands still, jumps and lies.
#include "zero_infinity/ranks/watch/peer_beats.h"

#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace penstock::testing {
namespace {

using namespace std::chrono_literals;
using zero::Beat;
using zero::BeatTimes;
using zero::PeerBeats;
using zero::Silence;
using Ranks = std::vector<std::uint32_t>;

constexpr BeatTimes usual;

Beat beat(std::uint64_t number, Beat::State state = Beat::State::on) {
    return {.state = state, .number = number, .host = "worker-2", .at = "call 1312, gather of blocks.7"};
}

// A look at what stands on the board: one beat for each rank, or none.
std::optional<Silence> look(PeerBeats& peers, const std::vector<std::optional<Beat>>& board,
                            BeatTimes::Time since_last = usual.beat) {
    std::vector<PeerBeats::Read> read;
    for (const std::uint32_t peer : peers.to_read()) read.push_back({peer, board[peer]});
    return peers.looked(since_last, read);
}

TEST(PeerBeats, ReadsTheThreeBehindItAndRank0) {
    EXPECT_EQ(PeerBeats(0, 1, usual).to_read(), Ranks{});
    EXPECT_EQ(PeerBeats(1, 2, usual).to_read(), Ranks{0});
    EXPECT_EQ(PeerBeats(2, 8, usual).to_read(), (Ranks{3, 4, 5, 0}));
    EXPECT_EQ(PeerBeats(6, 8, usual).to_read(), (Ranks{7, 0, 1}));
    EXPECT_EQ(PeerBeats(0, 64, usual).to_read(), (Ranks{1, 2, 3}));
    EXPECT_EQ(PeerBeats(40, 64, usual).to_read(), (Ranks{41, 42, 43, 0}));

    PeerBeats peers(2, 8, usual);
    std::vector<std::optional<Beat>> board(8, beat(1));
    board[3] = board[0] = beat(1, Beat::State::finished);
    board[4] = beat(1, Beat::State::ended);
    EXPECT_FALSE(look(peers, board));
    EXPECT_EQ(peers.to_read(), (Ranks{5, 6, 7})) << "those at their end are passed over";
}

// Each of up to six ranks lives, is silent, or is finished.
TEST(PeerBeats, WhicheverRanksAreSilentOneThatLivesNoticesInTime) {
    for (std::uint32_t ranks = 2; ranks <= 6; ++ranks) {
        std::uint32_t sets = 1;
        for (std::uint32_t rank = 0; rank < ranks; ++rank) sets *= 3;
        for (std::uint32_t set = 0; set < sets; ++set) {
            enum Fate { lives, silent, finished };
            std::vector<Fate> fate;
            std::vector<PeerBeats> peers;
            for (std::uint32_t rank = 0, left = set; rank < ranks; ++rank, left /= 3) {
                fate.push_back(static_cast<Fate>(left % 3));
                peers.emplace_back(rank, ranks, usual);
            }
            bool is_noticed = false;
            for (std::uint64_t second = 1; second <= 40; ++second) {
                std::vector<std::optional<Beat>> board;
                for (const Fate each : fate)
                    board.push_back(each == lives      ? beat(second)
                                    : each == finished ? beat(7, Beat::State::finished)
                                                       : beat(7));
                for (std::uint32_t rank = 0; rank < ranks; ++rank) {
                    if (fate[rank] != lives) continue;
                    const auto found = look(peers[rank], board);
                    if (!found) continue;
                    ASSERT_EQ(fate[found->rank], silent) << "of rank " << rank << " in set " << set;
                    ASSERT_GE(second, 31U);
                    is_noticed = true;
                }
            }
            const bool somebody_lives = std::ranges::count(fate, lives) > 0;
            ASSERT_EQ(is_noticed, somebody_lives && std::ranges::count(fate, silent) > 0)
                << "set " << set << " of " << ranks;
        }
    }
}

TEST(PeerBeats, SaysWhoIsSilentSinceWhenAndInWhat) {
    PeerBeats peers(0, 3, usual);
    std::optional<Silence> found;
    std::uint64_t second = 0;
    while (!found && second < 100) {
        ++second;
        found = look(peers, {std::nullopt, beat(second), beat(std::min<std::uint64_t>(second, 10))});
    }
    ASSERT_TRUE(found);
    EXPECT_EQ(second, 40U) << "30 s behind the look that saw the last beat";
    EXPECT_EQ(found->rank, 2U);
    EXPECT_EQ(found->words(), "silent for 30 s; it was in call 1312, gather of blocks.7");
    EXPECT_EQ((Silence{.rank = 1, .lasted = 31s, .last = Beat{}}.words()), "silent for 31 s");
}

TEST(PeerBeats, OfSeveralTheOneThatIsSilentLongestIsNamed) {
    for (const std::uint32_t longest : {1U, 2U, 3U}) {
        PeerBeats peers(0, 4, usual);
        std::vector<std::optional<Beat>> board(4);
        std::uint64_t second = 0;
        for (const std::uint32_t peer : {1U, 2U, 3U}) board[peer] = beat(1);
        for (; second < 20; ++second) {
            for (const std::uint32_t peer : {1U, 2U, 3U})
                if (peer != longest) board[peer] = beat(second + 2);
            ASSERT_FALSE(look(peers, board));
        }
        // Both others come to their deadline at a look that counts for two beats and more.
        for (int turn = 0; turn < 10; ++turn) look(peers, board);
        const auto found = look(peers, board, 1h);
        ASSERT_TRUE(found);
        EXPECT_EQ(found->rank, longest);
        for (int turn = 0; turn < 30; ++turn) look(peers, board);
        EXPECT_EQ(look(peers, board)->rank, longest);
    }
}

// This process is stopped, or its machine suspended, for minutes at a time; the others beat on meanwhile.
TEST(PeerBeats, WhoeverWasStoppedItselfAccusesNobody) {
    const std::uint64_t first = first_seed();
    for (std::uint64_t seed = first; seed < first + seed_count(200); ++seed) {
        SCOPED_TRACE(replay(seed));
        std::mt19937_64 random(seed);
        PeerBeats peers(static_cast<std::uint32_t>(random() % 5), 5, usual);
        std::uint64_t now = 1;  // seconds
        for (int turn = 0; turn < 200; ++turn) {
            const std::uint64_t gap = random() % 4 == 0 ? 60 + random() % 600 : 1;
            now += gap;
            // Another one may be seen at the look behind the stop as it was before.
            std::vector<std::optional<Beat>> board(5, beat(gap > 1 && random() % 2 == 0 ? now - gap : now));
            ASSERT_FALSE(look(peers, board, std::chrono::seconds(gap)));
        }
    }
}

// However slow a look is: it counts for two beats, so a deadline of 30 takes at least 15 looks.
TEST(PeerBeats, SlowLooksCountForLittle) {
    PeerBeats peers(0, 2, usual);
    int looks = 1;
    look(peers, {std::nullopt, beat(1)}, 0s);
    while (!look(peers, {std::nullopt, beat(1)}, 1h)) ++looks;
    EXPECT_EQ(looks, 15);
}

TEST(PeerBeats, WhoHasNeverComeHasLonger) {
    PeerBeats peers(0, 3, usual);
    std::uint64_t second = 1;
    std::optional<Silence> found;
    while (second < 1000 && !(found = look(peers, {std::nullopt, beat(second), std::nullopt}))) ++second;
    ASSERT_TRUE(found);
    EXPECT_EQ(second, 300U);
    EXPECT_EQ(found->rank, 2U);
    EXPECT_EQ(found->words(), "it has not come within 300 s");
}

// Rank 5 of 8 is gone; rank 0 reads 1 to 3 until it has lost a connection. Rank 2 is slow, now and then.
TEST(PeerBeats, InDoubtWhoIsGoneIsNamedWithinSeconds) {
    PeerBeats peers(0, 8, usual);
    const auto board = [](std::uint64_t second, std::uint64_t of_rank_2) {
        std::vector<std::optional<Beat>> all(8, beat(second));
        all[5] = beat(3);
        all[2] = beat(of_rank_2);
        return all;
    };
    for (std::uint64_t second = 1; second <= 25; ++second) ASSERT_FALSE(look(peers, board(second, 1)));
    EXPECT_FALSE(peers.doubt_is_over());
    peers.begin_doubt();
    EXPECT_EQ(peers.to_read(), (Ranks{1, 2, 3, 4, 5, 6, 7}));
    EXPECT_FALSE(look(peers, board(26, 1))) << "who was slow before is not gone";
    EXPECT_FALSE(look(peers, board(27, 2)));
    peers.begin_doubt();  // again, without effect
    EXPECT_FALSE(look(peers, board(28, 2)));
    const auto found = look(peers, board(29, 3));
    ASSERT_TRUE(found);
    EXPECT_EQ(found->rank, 5U);
    EXPECT_EQ(found->lasted, 3s);
    EXPECT_FALSE(peers.doubt_is_over());
}

TEST(PeerBeats, DoubtIsOverWhereAllBeatOn) {
    PeerBeats peers(1, 3, usual);
    std::uint64_t second = 1;
    look(peers, {beat(1), std::nullopt, beat(1)});
    peers.begin_doubt();
    while (!peers.doubt_is_over() && second < 100) {
        ++second;
        ASSERT_FALSE(look(peers, {beat(second), std::nullopt, beat(second)}));
    }
    EXPECT_EQ(second, 6U);
}

TEST(Beat, ComesOffTheBoardAsItWasPut) {
    for (const Beat::State state : {Beat::State::on, Beat::State::ended, Beat::State::finished})
        EXPECT_EQ(zero::beat_of(board_text(beat(12, state))), beat(12, state));
    EXPECT_EQ(zero::beat_of(board_text(Beat{})), Beat{});
    const Beat lines{.state = Beat::State::on, .number = 1, .host = "a\nb", .at = std::string(2000, 'x') + "\n"};
    EXPECT_EQ(zero::beat_of(board_text(lines))->host, "a b");
    EXPECT_EQ(zero::beat_of(board_text(lines))->at, std::string(300, 'x'));
    for (const char* text : {"", "1", "1\n", "x\non\n\n", "1x\non\n\n", "1\ngone\n\n", "-1\non\n\n"})
        EXPECT_FALSE(zero::beat_of(text)) << text;
}

}  // namespace
}  // namespace penstock::testing
