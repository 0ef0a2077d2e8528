// Numbers of bytes: rounded up, and as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// REQUIRES: multiple > 0, and the result fits.
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) noexcept {
    return (value + multiple - 1) / multiple * multiple;
}

// "300MiB" → 314572800; units B, KiB, MiB, GiB, TiB or none, fractions allowed as long as the bytes are whole, 2^60 at
// most. Nothing when it is no such text. Any thread.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// The shortest text for which parse_bytes() gives these bytes, without fractions: "256KiB", "1000B".
std::string bytes_text(std::uint64_t bytes);

}  // namespace penstock
