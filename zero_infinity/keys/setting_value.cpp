#include "zero_infinity/keys/setting_value.h"

#include "aio/words/byte_count.h"
#include "aio/words/check.h"
#include "aio/words/error.h"
#include "zero_infinity/keys/key_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock::zero {
namespace {

using nlohmann::json;

bool within(const KeySpec& key, double value) {
    return value >= key.range.low && value <= key.range.high;
}

std::optional<std::int64_t> to_integer(const json& value) {
    if (value.is_number_integer()) return value.get<std::int64_t>();  // wraps from 2^63 on, to what no key allows
    // DeepSpeed's files write 1e9 for large counts.
    if (!value.is_number_float()) return {};
    const double number = value.get<double>();
    if (std::floor(number) != number || std::abs(number) > 9e15) return {};
    return static_cast<std::int64_t>(number);
}

std::optional<SettingValue> to_pair(const KeySpec& key, const json& value) {
    if (!value.is_array() || value.size() != 2) return {};
    std::vector<double> numbers;
    for (const json& item : value) {
        if (!item.is_number() || !within(key, item.get<double>())) return {};
        numbers.push_back(item.get<double>());
    }
    return numbers;
}

std::optional<SettingValue> to_names(const json& value) {
    if (!value.is_array()) return {};
    std::vector<std::string> names;
    for (const json& item : value) {
        if (!item.is_string()) return {};
        names.push_back(item.get<std::string>());
    }
    return names;
}

bool is_word(const json& value, std::string_view word) {
    return value.is_string() && value.get<std::string>() == word;
}

std::optional<SettingValue> to_whole(const KeySpec& key, const json& value) {
    const auto integer = to_integer(value);
    if (!integer || !within(key, static_cast<double>(*integer))) return {};
    return *integer;
}

std::optional<SettingValue> to_number(const KeySpec& key, const json& value) {
    if (!value.is_number() || !within(key, value.get<double>())) return {};
    return value.get<double>();
}

std::optional<SettingValue> to_choice(const KeySpec& key, const json& value) {
    if (!value.is_string()) return {};
    const auto text = value.get<std::string>();
    const auto older = std::ranges::find(key.older, text, &Alias::spelling);
    if (older != key.older.end()) return std::string(older->value);
    if (std::ranges::find(key.choices, text) == key.choices.end()) return {};
    return text;
}

std::optional<SettingValue> to_bytes(const KeySpec& key, const json& value) {
    std::uint64_t bytes = 0;
    if (value.is_string()) {
        const auto written = parse_bytes(value.get<std::string>());
        if (!written) return {};
        bytes = *written;
    } else {
        const auto integer = to_integer(value);
        if (!integer || *integer < 0) return {};
        bytes = static_cast<std::uint64_t>(*integer);
    }
    if (!within(key, static_cast<double>(bytes))) return {};
    return static_cast<std::int64_t>(bytes);
}

std::optional<SettingDirectory> to_directory(const json& value) {
    if (value.is_string() && !value.get<std::string>().empty())
        return SettingDirectory{.path = value.get<std::string>()};
    if (!value.is_object() || value.empty() || !value.contains("path")) return {};
    SettingDirectory directory;
    for (const auto& [word, part] : value.items()) {
        if (word == "path" && part.is_string() && !part.get<std::string>().empty()) {
            directory.path = part.get<std::string>();
        } else if (word == "bandwidth" && is_word(part, auto_text)) {
            directory.bandwidth = SettingBandwidth{};
        } else if (word == "bandwidth") {
            const auto bytes = to_bytes({.range = {1, 1e15}}, part);
            if (!bytes) return {};
            directory.bandwidth = SettingBandwidth{static_cast<double>(std::get<std::int64_t>(*bytes))};
        } else {
            return {};
        }
    }
    return directory;
}

std::optional<SettingValue> to_directories(const json& value) {
    std::vector<SettingDirectory> directories;
    for (const json& item : value.is_array() ? value : json::array({value})) {
        auto directory = to_directory(item);
        if (!directory) return {};
        directories.push_back(std::move(*directory));
    }
    if (directories.empty()) return {};
    return directories;
}

// nlohmann keeps the last of two equal keys; here that is an error. Called for each event of the parser.
class RepeatedKeys {
   public:
    explicit RepeatedKeys(std::string file) : file_(std::move(file)) {}

    bool operator()(json::parse_event_t event, const json& parsed) {
        if (event == json::parse_event_t::object_start) {
            seen_.emplace_back();
            path_.emplace_back();
        } else if (event == json::parse_event_t::object_end) {
            seen_.pop_back();
            path_.pop_back();
        } else if (event == json::parse_event_t::key) {
            path_.back() = parsed.get<std::string>();
            if (!seen_.back().insert(path_.back()).second) {
                throw Error(ExitCode::usage,
                            file_ + ": " + fmt::format("key '{}' is given twice; keep one", fmt::join(path_, ".")));
            }
        }
        return true;
    }

   private:
    std::string file_;
    std::vector<std::set<std::string>> seen_;
    std::vector<std::string> path_;
};

struct Spell {
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::int64_t value) const { return fmt::format("{}", value); }
    std::string operator()(double value) const { return fmt::format("{}", value); }  // shortest that reads back equal
    std::string operator()(const std::string& value) const { return value; }
    std::string operator()(const std::vector<double>& value) const {
        return fmt::format("[{}]", fmt::join(value, ", "));
    }
    std::string operator()(const std::vector<std::string>& value) const {
        return fmt::format("[{}]", fmt::join(value, ", "));
    }
    std::string operator()(const std::vector<SettingGroup>& value) const {
        std::string text;
        for (const SettingGroup& group : value) {
            text += fmt::format("{}{{\"{}\"", text.empty() ? "" : ", ", group.params);
            for (const auto& [name, numbers] : group.values)
                text += fmt::format(", {}: {}", name, fmt::join(numbers, " "));
            text += "}";
        }
        return "[" + text + "]";
    }
    std::string operator()(const std::vector<SettingDirectory>& value) const {
        std::string text;
        for (const SettingDirectory& directory : value) {
            text += (text.empty() ? "" : ", ") + directory.path;
            if (!directory.bandwidth) continue;
            const double bandwidth = directory.bandwidth->bytes_per_second;
            text += bandwidth > 0 ? fmt::format(" at {}", bandwidth) : fmt::format(" at {}", auto_text);
        }
        return text;
    }
};

}  // namespace

std::string spelled(const SettingValue& value) {
    return std::visit(Spell{}, value);
}

json parse_config(std::string_view text, const std::string& file) {
    try {
        RepeatedKeys repeated(file);
        return json::parse(
            text.begin(), text.end(),
            [&](int, json::parse_event_t event, json& parsed) { return repeated(event, parsed); }, true, true);
    } catch (const json::exception& error) {
        std::string message = error.what();
        // "[json.exception.parse_error.101] parse error at line 3, column 5: …": the prefix says nothing to a user.
        if (const auto end = message.find("] "); end != std::string::npos) message = message.substr(end + 2);
        throw Error(ExitCode::usage, file + ": is not JSON: " + message);
    }
}

std::optional<SettingValue> convert(const KeySpec& key, const json& value) {
    switch (key.type) {
        case KeyType::boolean:
            if (value.is_boolean()) return value.get<bool>();
            return {};
        case KeyType::integer:
            return to_whole(key, value);
        case KeyType::integer_or_word:
            if (is_word(value, key.choices.front())) return std::string(key.choices.front());
            return to_whole(key, value);
        case KeyType::number:
            return to_number(key, value);
        case KeyType::number_or_auto:
            if (is_word(value, auto_text)) return std::string(auto_text);
            return to_number(key, value);
        case KeyType::bytes_or_auto:
            if (is_word(value, auto_text)) return std::string(auto_text);
            return to_bytes(key, value);
        case KeyType::bytes:
            return to_bytes(key, value);
        case KeyType::text:
            if (value.is_string() && !value.get<std::string>().empty()) return value.get<std::string>();
            return {};
        case KeyType::any_text:
            if (value.is_string()) return value.get<std::string>();
            return {};
        case KeyType::choice:
            return to_choice(key, value);
        case KeyType::pair:
            return to_pair(key, value);
        case KeyType::names:
            return to_names(value);
        case KeyType::directories:
            return to_directories(value);
        case KeyType::groups:
        case KeyType::anything:
            break;
    }
    PENSTOCK_CHECK(false, "key {} is not for convert", key.path);
}

std::string older_word(const KeySpec& key, const json& value) {
    if (!value.is_string()) return {};
    const auto text = value.get<std::string>();
    for (const Alias& older : key.older)
        if (same_word(older.spelling, text)) return std::string(older.spelling);
    return {};
}

const char* kind_of(const json& value) {
    switch (value.type()) {
        case json::value_t::null:
            return "null";
        case json::value_t::object:
            return "a section";
        case json::value_t::array:
            return "a list";
        case json::value_t::string:
            return "text";
        case json::value_t::boolean:
            return "true or false";
        case json::value_t::number_float:
            return "a number with a fraction";
        default:
            return "an integer";
    }
}

std::string found_text(const json& value) {
    std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return fmt::format("{} ({})", text, kind_of(value));
}

}  // namespace penstock::zero
