// A board over the functions of a C program, which here are another board's.
#include "zero_infinity/ranks/capi/board_calls.h"

#include "aio/words/error.h"
#include "swap/capi/c_error.h"
#include "tests/zero_infinity/ranks/watch/memory_board.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace penstock::testing {
namespace {

// Ends with its NUL within the room that is there.
void copy(const std::string& text, char* place, size_t room) {
    std::snprintf(place, room, "%s", text.c_str());
}

struct BoardProgram {
    static MemoryBoard& board(void* user) { return static_cast<BoardProgram*>(user)->texts; }
    static penstock_status put(const char* key, const char* value, void* user, penstock_error* error) {
        return store::guarded(error, [&] {
            board(user).put(key, value);
            return PENSTOCK_OK;
        });
    }
    static penstock_status put_first(const char* key, const char* value, char* stands, size_t room, void* user,
                                     penstock_error* error) {
        return store::guarded(error, [&] {
            copy(board(user).put_first(key, value), stands, room);
            return PENSTOCK_OK;
        });
    }
    static penstock_status get(const char* key, char* value, size_t room, void* user, penstock_error* error) {
        return store::guarded(error, [&] {
            const auto text = board(user).get(key);
            if (text) copy(*text, value, room);
            return text ? PENSTOCK_OK : PENSTOCK_NOT_FOUND;
        });
    }
    penstock_ranks given() {
        penstock_ranks ranks{};
        ranks.struct_bytes = sizeof ranks;
        ranks.ranks = 2;
        ranks.name = "memory through C";
        ranks.deadline_ms = 1;
        ranks.all_gather = ranks.exchange = [](penstock_channel, const void*, void*, uint64_t, void*, penstock_error*) {
            return PENSTOCK_INTERNAL;
        };
        ranks.abort = [](const char*, void*) {};
        ranks.user = this;
        ranks.put = put;
        ranks.put_first = put_first;
        ranks.get = get;
        return ranks;
    }

    MemoryBoard texts;
};

TEST(CalledBoard, GivesWhatWasPutFirstAndWhatWasPutLast) {
    BoardProgram program;
    const penstock_ranks given = program.given();
    const zero::RankCalls calls(&given);
    ASSERT_TRUE(calls.has_board());
    zero::CalledBoard board(calls);
    EXPECT_EQ(board.get("beat/1"), std::nullopt);
    board.put("beat/1", "1");
    board.put("beat/1", "2");
    EXPECT_EQ(board.get("beat/1"), "2");
    EXPECT_EQ(board.put_first("cause", "mine"), "mine");
    EXPECT_EQ(board.put_first("cause", "yours"), "mine");
    EXPECT_EQ(board.get("cause"), "mine");
    const std::string longest(zero::Board::most_value_bytes, 'x');
    EXPECT_EQ(board.put_first("long", longest), longest);
    EXPECT_EQ(board.get("long"), longest);
    board.put("empty", "");
    EXPECT_EQ(board.get("empty"), "");
}

TEST(CalledBoard, IsLostWithTheWordsOfTheProgram) {
    BoardProgram program;
    penstock_ranks given = program.given();
    program.texts.lose();
    const auto lost = [&](const auto& call) -> std::string {
        const zero::RankCalls calls(&given);
        zero::CalledBoard board(calls);
        try {
            call(board);
        } catch (const Error& error) {
            EXPECT_EQ(error.code(), ExitCode::peer_lost);
            return error.what();
        }
        return "nothing";
    };
    const std::string reset = "connection reset by the board's host";
    EXPECT_EQ(lost([](auto& board) { board.put("a", "b"); }), reset);
    EXPECT_EQ(lost([](auto& board) { board.put_first("a", "b"); }), reset);
    EXPECT_EQ(lost([](auto& board) { board.get("a"); }), reset);
    // A function that writes no end of its text.
    given.get = [](const char*, char* value, size_t room, void*, penstock_error*) {
        std::fill_n(value, room, 'x');
        return PENSTOCK_OK;
    };
    EXPECT_EQ(lost([](auto& board) { EXPECT_EQ(board.get("a")->size(), zero::Board::most_value_bytes + 1); }),
              "nothing");
}

TEST(CalledBoard, IsWholeOrIsNotThere) {
    BoardProgram program;
    const auto with = [&](auto change) -> std::string {
        penstock_ranks given = program.given();
        change(given);
        try {
            return zero::RankCalls(&given).has_board() ? "a board" : "no board";
        } catch (const store::Refusal& refused) {
            return refused.what();
        }
    };
    const std::string refused = "one of ranks.put, put_first and get is NULL: a board has all three";
    EXPECT_EQ(with([](auto&) {}), "a board");
    EXPECT_EQ(with([](auto& given) { given.put = nullptr; }), refused);
    EXPECT_EQ(with([](auto& given) { given.put_first = nullptr; }), refused);
    EXPECT_EQ(with([](auto& given) { given.get = nullptr; }), refused);
    EXPECT_EQ(with([](auto& given) {
                  given.put = nullptr;
                  given.put_first = nullptr;
                  given.get = nullptr;
              }),
              "no board");
    // A program that was compiled before there was one.
    EXPECT_EQ(with([](auto& given) { given.struct_bytes = offsetof(penstock_ranks, put); }), "no board");
    EXPECT_NE(with([](auto& given) { given.struct_bytes = offsetof(penstock_ranks, user); }).find("struct_bytes"),
              std::string::npos);
}

}  // namespace
}  // namespace penstock::testing
