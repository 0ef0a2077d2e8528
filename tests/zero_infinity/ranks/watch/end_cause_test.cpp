// Why a run ends, in the words of a log and of a board.
#include "zero_infinity/ranks/watch/end_cause.h"

#include "zero_infinity/ranks/board.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

using zero::end_cause_of;
using zero::EndCause;
using zero::ended_line;

const EndCause storage{.by = 1, .rank = 1, .host = "worker-2", .what = "storage: /nvme/weights: no space left"};
const EndCause silence{.by = 0, .rank = 2, .host = "worker-2", .what = "silent for 31 s; it was in call 1312"};

TEST(EndCause, IsALineInTheLogOfEachRank) {
    EXPECT_EQ(ended_line(3, {412, 411}, storage),
              "rank 3: step 412 ended because of rank 1 (worker-2): storage: /nvme/weights: no space left; the last "
              "committed step is 411");
    EXPECT_EQ(ended_line(1, {1, 0}, storage),
              "rank 1: step 1 ended by storage: /nvme/weights: no space left; no step is committed");
    EXPECT_EQ(ended_line(0, {2, 1}, silence),
              "rank 0: step 2 ended because of rank 2 (worker-2): silent for 31 s; it was in call 1312; the last "
              "committed step is 1");
    EXPECT_EQ(ended_line(2, {2, 1}, silence),
              "rank 2: step 2 ended because rank 0 says of this one: silent for 31 s; it was in call 1312; the last "
              "committed step is 1");
    EXPECT_EQ((EndCause{.by = 0, .rank = 2, .host = "", .what = "gone"}.words()), "rank 2: gone");
}

TEST(EndCause, ComesOffTheBoardAsItWasPut) {
    for (const EndCause& cause : {storage, silence, EndCause{.by = 0, .rank = 63, .host = "", .what = ""},
                                  EndCause{.by = 7, .rank = 7, .host = "a host", .what = "what: with a 7 8 in it"}})
        EXPECT_EQ(end_cause_of(board_text(cause)), cause) << board_text(cause);
    EXPECT_EQ(board_text(storage), "1 1 worker-2\nstorage: /nvme/weights: no space left");  // Python writes it, too
}

TEST(EndCause, IsCutToWhatABoardHolds) {
    EndCause cause = storage;
    for (const std::size_t shift : {0U, 1U, 2U}) {
        cause.what.assign(shift, 'x');
        while (cause.what.size() < 5000) cause.what += "\u20ac";  // of three bytes
        const std::string text = board_text(cause);
        EXPECT_LE(text.size(), zero::Board::most_value_bytes);
        EXPECT_GT(text.size(), zero::Board::most_value_bytes - 300);
        EXPECT_EQ((end_cause_of(text).what.size() - shift) % 3, 0U) << "a character was cut";
    }
    cause.what = std::string("two\nlines\r\nand\0a NUL", 20);
    cause.host = "a\nb";
    EXPECT_EQ(end_cause_of(board_text(cause)).what, "two lines  and a NUL");
    EXPECT_EQ(end_cause_of(board_text(cause)).host, "a b");
}

TEST(EndCause, AnyOtherTextIsACauseByItself) {
    for (const char* text : {"", "gone", "1 2", "1 2\nwhat", "x 2 host\nwhat", "1 -2 host\nwhat", "99999999999 1 h\nw"})
        EXPECT_EQ(end_cause_of(text).what, text);
}

}  // namespace
}  // namespace penstock::testing
