// The words of an enum, written once and beside it: what a parser takes, a printer writes and a message lists.
//
//   enum class Colour : std::uint8_t { red, green };
//   constexpr auto words_of(Colour) noexcept {
//       return std::array{Word{Colour::red, "red"}, Word{Colour::green, "green"}};
//   }
//
//   word_of(Colour::red)          "red"
//   find_word<Colour>("green")    Colour::green; nothing for a word that is none of them
//   all_words<Colour>             "red", "green"
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>

namespace penstock {

template <typename Enum>
struct Word {
    Enum value;
    const char* text;
};
template <typename Enum>
Word(Enum, const char*) -> Word<Enum>;

template <typename Enum>
concept HasWords = requires {
    words_of(Enum{});
};

template <HasWords Enum>
constexpr const char* word_of(Enum value) noexcept {
    for (const Word<Enum>& word : words_of(value))
        if (word.value == value) return word.text;
    return "?";
}

template <HasWords Enum>
constexpr std::optional<Enum> find_word(std::string_view text) noexcept {
    for (const Word<Enum>& word : words_of(Enum{}))
        if (word.text == text) return word.value;
    return std::nullopt;
}

// In the order of the table, after `first`: words of other meanings that stand with them ("auto").
template <HasWords Enum, typename... First>
constexpr auto words_after(First... first) noexcept {
    constexpr auto table = words_of(Enum{});
    std::array<std::string_view, sizeof...(First) + table.size()> words{first...};
    for (std::size_t i = 0; i < table.size(); ++i) words[sizeof...(First) + i] = table[i].text;
    return words;
}
template <HasWords Enum>
inline constexpr auto all_words = words_after<Enum>();

}  // namespace penstock
