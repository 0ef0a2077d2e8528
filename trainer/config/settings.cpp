#include "trainer/config/settings.h"

#include "aio/words/check.h"
#include "aio/words/error.h"
#include "trainer/config/setting_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace penstock::trainer {
namespace {

using nlohmann::json;

std::string join(const std::string& section, const std::string& key) {
    return section.empty() ? key : section + "." + key;
}

[[noreturn]] void refuse(const std::string& place, const std::string& problem) {
    throw Error(ExitCode::usage, place + ": " + problem);
}

}  // namespace

// Fills a Settings from the file's tree and the command line.
class SettingsReader {
   public:
    explicit SettingsReader(Settings& settings) : settings_(settings) {}

    void read_section(const json& object, const std::string& section) {
        for (const auto& [name, value] : object.items()) {
            const std::string path = join(section, name);
            if (const KeySpec* key = find_key(path)) {
                set(*key, value, settings_.file_, Settings::Source::file);
            } else if (!is_section(path)) {
                refuse_unknown(settings_.file_, path);
            } else if (!value.is_object()) {
                refuse(settings_.file_,
                       fmt::format("key '{}' is {}; expected a section in braces", path, found_text(value)));
            } else {
                read_section(value, path);
            }
        }
    }

    void read_override(const std::string& text) {
        const auto equals = text.find('=');
        if (equals == std::string::npos) refuse("--set " + text, "has no '='; write --set model.layers=4");
        const std::string path = text.substr(0, equals);
        const std::string value_text = text.substr(equals + 1);
        const KeySpec* key = find_key(path);
        if (key == nullptr) refuse_unknown("--set", path);
        json value = json::parse(value_text, nullptr, false);
        const bool wants_text = key->type == KeyType::text || key->type == KeyType::choice;
        const bool wants_path = key->type == KeyType::directories && !value.is_array();
        if (value.is_discarded() || ((wants_text || wants_path) && !value.is_string())) value = value_text;
        set(*key, value, "--set", Settings::Source::command_line);
    }

    void fill_fallbacks() {
        for (const KeySpec& key : keys()) {
            if (settings_.has(key.path)) continue;
            const std::string text = default_text(key);
            if (text.starts_with('(')) continue;
            if (text.empty()) {
                refuse(settings_.file_,
                       fmt::format("key '{}' is missing: {}; expected {}", key.path, key.help, expectation(key)));
            }
            set(key, json::parse(text), "key table", Settings::Source::fallback);
        }
    }

   private:
    void set(const KeySpec& key, const json& value, const std::string& place, Settings::Source source) {
        std::optional<SettingValue> converted;
        if (key.type == KeyType::groups)
            converted = read_groups(key, value, place);
        else
            converted = convert(key, value);
        if (!converted) {
            refuse(place, fmt::format("key '{}' is {}; expected {}", key.path, found_text(value), expectation(key)));
        }
        settings_.entries_.insert_or_assign(std::string(key.path),
                                            Settings::Entry{std::move(*converted), source, older_word(key, value)});
    }

    [[noreturn]] static void refuse_unknown(const std::string& place, const std::string& path) {
        if (is_section(path)) refuse(place, fmt::format("'{}' is a section; name one of its keys", path));
        std::string problem =
            fmt::format("key '{}' is unknown; the nearest known one is '{}'", path, nearest_key(path));
        // What a section of parameters takes depends on a type beside it, and is worth a look as a whole.
        const std::string parent = path.substr(0, path.rfind('.'));
        if (parent.ends_with(".params") && is_section(parent))
            problem += fmt::format("; known in {} are {}", parent, fmt::join(words_of_section(parent), ", "));
        refuse(place, problem);
    }

    Settings& settings_;
};

Settings Settings::parse(std::string_view text, const std::string& file, const std::vector<std::string>& overrides) {
    const json root = parse_config(text, file);
    if (!root.is_object()) refuse(file, fmt::format("is {}; expected a configuration in braces", kind_of(root)));
    Settings settings;
    settings.file_ = file;
    SettingsReader reader(settings);
    reader.read_section(root, "");
    for (const std::string& text_of_override : overrides) reader.read_override(text_of_override);
    reader.fill_fallbacks();
    return settings;
}

bool Settings::has(std::string_view key) const {
    PENSTOCK_CHECK(is_key(key), "key {}", key);
    return entries_.find(key) != entries_.end();
}

bool Settings::given(std::string_view key) const {
    if (!has(key)) return false;
    const Source source = entries_.find(key)->second.source;
    return source == Source::file || source == Source::command_line;
}

bool Settings::derived(std::string_view key) const {
    return has(key) && entries_.find(key)->second.source == Source::derived;
}

const SettingValue& Settings::value(std::string_view key) const {
    PENSTOCK_CHECK(has(key), "key {} has no value", key);
    return entries_.find(key)->second.value;
}

std::string_view Settings::said_as(std::string_view key) const {
    return has(key) ? std::string_view(entries_.find(key)->second.said_as) : std::string_view();
}

template <typename Value>
const Value& Settings::get(std::string_view key) const {
    const auto* found = std::get_if<Value>(&value(key));
    PENSTOCK_CHECK(found != nullptr, "key {} is of another type", key);
    return *found;
}

bool Settings::is_auto(std::string_view key) const {
    const auto* text = std::get_if<std::string>(&value(key));
    return text != nullptr && *text == auto_text;
}

bool Settings::boolean(std::string_view key) const {
    return get<bool>(key);
}
std::int64_t Settings::integer(std::string_view key) const {
    return get<std::int64_t>(key);
}
std::uint64_t Settings::bytes(std::string_view key) const {
    return static_cast<std::uint64_t>(get<std::int64_t>(key));
}
double Settings::number(std::string_view key) const {
    return get<double>(key);
}
const std::string& Settings::text(std::string_view key) const {
    return get<std::string>(key);
}
const std::vector<double>& Settings::numbers(std::string_view key) const {
    return get<std::vector<double>>(key);
}
const std::vector<std::string>& Settings::names(std::string_view key) const {
    return get<std::vector<std::string>>(key);
}

const std::vector<SettingGroup>& Settings::groups(std::string_view key) const {
    return get<std::vector<SettingGroup>>(key);
}

const std::vector<SettingDirectory>& Settings::directories(std::string_view key) const {
    return get<std::vector<SettingDirectory>>(key);
}

std::string Settings::spelled(std::string_view key) const {
    if (!has(key)) return std::string(unset);
    return zero::spelled(entries_.find(key)->second.value);
}

void Settings::give(std::string_view key, SettingValue value, std::string said_as) {
    PENSTOCK_CHECK(is_key(key), "key {}", key);
    entries_.insert_or_assign(std::string(key), Entry{std::move(value), Source::file, std::move(said_as)});
}

void Settings::forget(std::string_view key) {
    PENSTOCK_CHECK(is_key(key), "key {}", key);
    if (const auto found = entries_.find(key); found != entries_.end()) entries_.erase(found);
}

void Settings::fall_back(std::string_view key, SettingValue value) {
    PENSTOCK_CHECK(is_key(key), "key {}", key);
    entries_.insert_or_assign(std::string(key), Entry{std::move(value), Source::fallback});
}

void Settings::derive(std::string_view key, SettingValue value) {
    PENSTOCK_CHECK(!given(key), "key {} is given", key);
    entries_.insert_or_assign(std::string(key), Entry{std::move(value), Source::derived});
}

}  // namespace penstock::trainer
