// A line of what stands on a board.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace penstock::zero {

// One line of any text: ends of lines and NUL become spaces. Cut between two characters of UTF-8 where it is longer
// than `most_bytes`.
std::string board_line(std::string_view text, std::size_t most_bytes);

}  // namespace penstock::zero
