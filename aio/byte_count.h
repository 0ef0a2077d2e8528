// Numbers of bytes as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace penstock {

// "300MiB" → 314572800; units B, KiB, MiB, GiB, TiB or none, fractions allowed as long as the bytes are whole, 2^60 at
// most. Nothing when it is no such text. Any thread.
std::optional<std::uint64_t> parse_bytes(std::string_view text);

}  // namespace penstock
