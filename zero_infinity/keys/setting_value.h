// The value of one key: its type, and how JSON becomes it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace penstock::zero {

struct KeySpec;

inline constexpr const char* auto_text = "auto";
inline constexpr const char* scratch_text = "scratch";  // run.commit_every: never

// One element of a list of groups: a pattern, and options by the last word of their key.
struct SettingGroup {
    std::string params;
    std::map<std::string, std::vector<double>> values;  // a number, two of a pair, or 0 or 1 of a boolean
};

// What a directory's share of the work follows.
struct SettingBandwidth {
    double bytes_per_second = 0;  // 0: as its profile says ("auto")
    bool operator==(const SettingBandwidth&) const = default;
};

// One element of a list of directories.
struct SettingDirectory {
    std::string path;
    std::optional<SettingBandwidth> bandwidth = {};
    bool operator==(const SettingDirectory&) const = default;
};

// Integers and bytes are int64; where the key allows it, a text such as "auto" stands in their place.
using SettingValue = std::variant<bool, std::int64_t, double, std::string, std::vector<double>,
                                  std::vector<std::string>, std::vector<SettingGroup>, std::vector<SettingDirectory>>;

// JSON with comments, no key of which is given twice. Throws Error (usage) with `file` in front.
nlohmann::json parse_config(std::string_view text, const std::string& file);

// One spelling per value, so that equal values have equal text: 0.001, 1048576, a, [0.9, 0.999].
std::string spelled(const SettingValue& value);

// Nothing when type or range do not fit the key. Whole numbers may be written as 1e9, as DeepSpeed's files do.
// REQUIRES: the key's type is not groups, nor anything.
std::optional<SettingValue> convert(const KeySpec& key, const nlohmann::json& value);

// The word of KeySpec::older that the value is, in any case of letters; empty: it is none.
std::string older_word(const KeySpec& key, const nlohmann::json& value);

// "a list", "a number with a fraction".
const char* kind_of(const nlohmann::json& value);
// What was found and of which kind, short enough for one line: "9.5 (a number with a fraction)".
std::string found_text(const nlohmann::json& value);

}  // namespace penstock::zero
