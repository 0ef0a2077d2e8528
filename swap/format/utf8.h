// UTF-8: where its characters begin and end.
#pragma once

#include <cstddef>
#include <string_view>

namespace penstock::store {

// Bytes of the character that begins at `first`; 0 where there is none (overlong forms and surrogates are none).
// REQUIRES: first < text.size().
std::size_t utf8_length(std::string_view text, std::size_t first) noexcept;
bool is_utf8(std::string_view text) noexcept;

// Whether the byte (10xxxxxx) goes on with the character before it: cut before one that does not.
constexpr bool continues_character(char byte) noexcept {
    return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

}  // namespace penstock::store
