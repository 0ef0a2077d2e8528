#include "swap/format/utf8.h"

#include <gtest/gtest.h>

#include <string_view>

namespace penstock::store {
namespace {

using namespace std::string_view_literals;

TEST(Utf8, MeasuresTheCharacterThatBeginsThere) {
    EXPECT_EQ(utf8_length("a", 0), 1U);
    EXPECT_EQ(utf8_length("\0"sv, 0), 1U);
    EXPECT_EQ(utf8_length("aö", 1), 2U);
    EXPECT_EQ(utf8_length("€", 0), 3U);
    EXPECT_EQ(utf8_length("\xf4\x8f\xbf\xbf", 0), 4U);  // U+10FFFF
}

TEST(Utf8, RefusesWhatIsNoCharacter) {
    for (const std::string_view wrong :
         {"\x80"sv, "\xc3"sv, "\xc3("sv, "\xc0\xaf"sv, "\xe0\x9f\xbf"sv, "\xed\xa0\x80"sv, "\xe2\x82"sv,
          "\xf0\x8f\xbf\xbf"sv, "\xf4\x90\x80\x80"sv, "\xf5\x80\x80\x80"sv, "\xff"sv}) {
        EXPECT_EQ(utf8_length(wrong, 0), 0U);
        EXPECT_FALSE(is_utf8(wrong));
    }
    EXPECT_TRUE(is_utf8(""));
    EXPECT_TRUE(is_utf8("aö€"));
    EXPECT_FALSE(is_utf8("aö\xe2"));
}

}  // namespace
}  // namespace penstock::store
