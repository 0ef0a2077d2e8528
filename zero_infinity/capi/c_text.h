// Text into the arrays of the C structures.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

namespace penstock::zero {

// Cut where it is longer. REQUIRES: the place is zero, of which it keeps one at its end.
template <std::size_t Length>
void put_text(std::string_view text, char (&place)[Length]) {
    std::memcpy(place, text.data(), std::min(text.size(), Length - 1));
}

}  // namespace penstock::zero
