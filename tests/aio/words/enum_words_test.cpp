#include "aio/words/enum_words.h"

#include "aio/backend.h"

#include <gtest/gtest.h>

#include <array>

namespace penstock {
namespace {

enum class Season : std::uint8_t { spring, autumn, unnamed };
constexpr auto words_of(Season) noexcept {
    return std::array{Word{Season::autumn, "autumn"}, Word{Season::spring, "spring"}};
}
enum class Wordless : std::uint8_t { one };

TEST(EnumWords, GoBothWays) {
    EXPECT_STREQ(word_of(Season::spring), "spring");
    EXPECT_EQ(find_word<Season>("autumn"), Season::autumn);
    EXPECT_EQ(find_word<Season>("autum"), std::nullopt);
    EXPECT_EQ(find_word<Season>(""), std::nullopt);
    EXPECT_STREQ(word_of(Season::unnamed), "?");
    static_assert(HasWords<Season> && !HasWords<Wordless> && !HasWords<int>);
}

TEST(EnumWords, AreListedInTheTablesOrderAfterOthers) {
    EXPECT_EQ(all_words<Season>, (std::array<std::string_view, 2>{"autumn", "spring"}));
    EXPECT_EQ(words_after<Season>("any"), (std::array<std::string_view, 3>{"any", "autumn", "spring"}));
}

TEST(EnumWords, OfAnotherNamespaceAreFound) {
    EXPECT_EQ(find_word<aio::BackendKind>("libaio"), aio::BackendKind::libaio);
    EXPECT_STREQ(word_of(aio::BackendKind::io_uring), "io_uring");
}

}  // namespace
}  // namespace penstock
