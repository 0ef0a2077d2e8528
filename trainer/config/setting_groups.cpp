// How the JSON of a list of groups becomes settings.
#include "trainer/config/setting_groups.h"

#include "aio/words/error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace penstock::trainer {
namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& place, const std::string& problem) {
    throw Error(ExitCode::usage, place + ": key " + problem);
}

std::vector<double> flat(const SettingValue& value) {
    if (const auto* numbers = std::get_if<std::vector<double>>(&value)) return *numbers;
    if (const auto* boolean = std::get_if<bool>(&value)) return {*boolean ? 1.0 : 0.0};
    return {std::get<double>(value)};
}

SettingGroup read_group(const KeySpec& key, const std::string& name, const json& group, const std::string& place) {
    const std::string section(key.choices.front());
    if (!group.is_object() || !group.contains("params") || group.size() < 2)
        refuse(place, fmt::format("'{}' is {}; expected {}", name, found_text(group), group_expectation(key)));
    SettingGroup made;
    for (const auto& [word, value] : group.items()) {
        const std::string path = name + "." + word;
        if (word == "params") {
            if (!value.is_string() || value.get<std::string>().empty())
                refuse(place, fmt::format("'{}' is {}; expected a pattern of UNIT.PARAMETER", path, found_text(value)));
            made.params = value.get<std::string>();
            continue;
        }
        const KeySpec* option = find_key(section + "." + word);
        if (option == nullptr)
            refuse(place, fmt::format("'{}' is unknown; a group has params and any of {}", path,
                                      fmt::join(words_of_section(section), ", ")));
        const auto converted = convert(*option, value);
        if (!converted)
            refuse(place, fmt::format("'{}' is {}; expected {}", path, found_text(value), expectation(*option)));
        made.values[word] = flat(*converted);
    }
    return made;
}

}  // namespace

std::vector<SettingGroup> read_groups(const KeySpec& key, const json& value, const std::string& place) {
    if (!value.is_array())
        refuse(place, fmt::format("'{}' is {}; expected {}", key.path, found_text(value), expectation(key)));
    std::vector<SettingGroup> groups;
    for (const json& group : value)
        groups.push_back(read_group(key, fmt::format("{}[{}]", key.path, groups.size()), group, place));
    return groups;
}

}  // namespace penstock::trainer
