#include "trainer/capi/package_values.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <span>
#include <string_view>

namespace penstock::trainer {
namespace {

using nlohmann::json;

struct ToJson {
    template <typename Value>
    json operator()(const Value& value) const {
        return value;
    }
    json operator()(const std::vector<SettingGroup>& groups) const { return groups.size(); }  // the package has none
    json operator()(const std::vector<SettingDirectory>& directories) const {
        json paths = json::array();
        for (const SettingDirectory& directory : directories) paths.push_back(directory.path);
        return paths;
    }
};

}  // namespace

json json_of(const SettingValue& value) {
    return std::visit(ToJson{}, value);
}

json in_our_words(const KeySpec& key, const json& value) {
    if (!value.is_string() || key.type != KeyType::choice) return value;
    const auto text = value.get<std::string>();
    for (const std::span<const Alias> words : {key.older, key.package.aliases})
        for (const Alias& alias : words)
            if (same_word(alias.spelling, text)) return alias.value;
    for (const std::string_view choice : key.choices)
        if (same_word(choice, text)) return choice;
    return value;
}

bool is_off(const json& value) {
    if (value.is_object()) {
        if (value.contains("enabled")) return is_off(value["enabled"]);
        return value.empty();
    }
    if (value.is_string()) return value.get<std::string>() == auto_text || value.get<std::string>().empty();
    if (value.is_boolean()) return !value.get<bool>();
    if (value.is_number()) return value.get<double>() == 0;
    return value.empty();
}

}  // namespace penstock::trainer
