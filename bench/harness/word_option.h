// An option of a verb that is "auto" or a word of an enum.
#pragma once

#include "aio/words/enum_words.h"

#include <string>
#include <vector>

namespace penstock::bench {

inline constexpr const char* auto_word = "auto";

template <HasWords Enum>
std::vector<std::string> auto_or_words() {
    constexpr auto words = words_after<Enum>(auto_word);
    return {words.begin(), words.end()};
}

// "auto, io_uring, libaio or threads"
template <HasWords Enum>
std::string auto_or_words_text() {
    constexpr auto words = words_after<Enum>(auto_word);
    std::string text;
    for (std::size_t i = 0; i < words.size(); ++i)
        text.append(i == 0 ? "" : i + 1 < words.size() ? ", " : " or ").append(words[i]);
    return text;
}

}  // namespace penstock::bench
