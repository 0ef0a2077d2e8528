// The value of one key: its type, and how JSON becomes it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace penstock {

struct KeySpec;

// Integers and bytes are int64.
using SettingValue =
    std::variant<bool, std::int64_t, double, std::string, std::vector<double>, std::vector<std::string>>;

// Nothing when type or range do not fit the key. Whole numbers may be written as 1e9, as DeepSpeed's files do.
std::optional<SettingValue> convert(const KeySpec& key, const nlohmann::json& value);

// "300MiB" → 314572800; units B, KiB, MiB, GiB, TiB or none, fractions allowed as long as the bytes are whole. Returns
// false when it is no such text.
bool parse_bytes(std::string_view text, std::uint64_t& bytes);

}  // namespace penstock
