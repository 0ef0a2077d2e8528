#include "zero_infinity/ranks/watch/board_line.h"

#include <algorithm>

namespace penstock::zero {
namespace {

bool goes_on(char byte) {
    return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;  // within a character
}

}  // namespace

std::string board_line(std::string_view text, std::size_t most_bytes) {
    std::size_t bytes = std::min(text.size(), most_bytes);
    while (bytes > 0 && bytes < text.size() && goes_on(text[bytes])) --bytes;
    std::string line(text.substr(0, bytes));
    std::ranges::replace_if(
        line, [](char byte) { return byte == '\n' || byte == '\r' || byte == '\0'; }, ' ');
    return line;
}

}  // namespace penstock::zero
