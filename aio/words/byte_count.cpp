#include "aio/words/byte_count.h"

#include <array>
#include <charconv>
#include <cmath>

namespace penstock {

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
    struct Unit {
        std::string_view name;
        double bytes;
    };
    constexpr std::array<Unit, 5> units = {
        {{"KiB", 0x1p10}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"B", 1}}};
    double factor = 1;
    for (const Unit& unit : units) {
        if (!text.ends_with(unit.name)) continue;
        factor = unit.bytes;
        text.remove_suffix(unit.name.size());
        break;
    }
    while (text.ends_with(' ')) text.remove_suffix(1);
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    const double bytes = number * factor;
    if (!(bytes >= 0) || bytes > 0x1p60 || std::floor(bytes) != bytes) return std::nullopt;
    return static_cast<std::uint64_t>(bytes);
}

std::string bytes_text(std::uint64_t bytes) {
    constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
    std::size_t unit = 0;
    for (; unit + 1 < units.size() && bytes % 1024 == 0 && bytes > 0; ++unit) bytes /= 1024;
    return std::to_string(bytes) + units[unit];
}

}  // namespace penstock
