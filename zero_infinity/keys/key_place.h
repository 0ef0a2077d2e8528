// How a key of a table fills a member, and takes its default from there.
#pragma once

#include "aio/words/enum_words.h"
#include "zero_infinity/keys/key_spec.h"
#include "zero_infinity/optimizer/optimizer_kind.h"
#include "zero_infinity/plan/core_options.h"

#include <array>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

namespace penstock::zero {

// From a value of the key's type, which is checked, to the member.
inline void take(bool& member, const SettingValue& value) {
    member = std::get<bool>(value);
}
inline void take(double& member, const SettingValue& value) {
    member = std::get<double>(value);
}
inline void take(std::string& member, const SettingValue& value) {
    member = std::get<std::string>(value);
}
inline void take(std::vector<std::string>& member, const SettingValue& value) {
    member = std::get<std::vector<std::string>>(value);
}
inline void take(std::vector<SettingDirectory>& member, const SettingValue& value) {
    member = std::get<std::vector<SettingDirectory>>(value);
}
inline void take(std::array<double, 2>& member, const SettingValue& value) {
    const auto& numbers = std::get<std::vector<double>>(value);
    member = {numbers.at(0), numbers.at(1)};
}
inline void take(std::chrono::microseconds& member, const SettingValue& value) {
    member = std::chrono::microseconds(std::get<std::int64_t>(value));
}
inline void take(std::chrono::seconds& member, const SettingValue& value) {
    member = std::chrono::seconds(std::get<std::int64_t>(value));
}
inline void take(Durability& member, const SettingValue& value) {
    const auto* steps = std::get_if<std::int64_t>(&value);
    member = steps == nullptr ? Durability::scratch : Durability{static_cast<std::uint64_t>(*steps)};
}
inline void take(const OptimizerKind*& member, const SettingValue& value) {
    member = find_optimizer(std::get<std::string>(value));
}
template <std::integral Integer>
void take(Integer& member, const SettingValue& value) {
    member = static_cast<Integer>(std::get<std::int64_t>(value));
}
template <HasWords Enum>
void take(Enum& member, const SettingValue& value) {
    member = find_word<Enum>(std::get<std::string>(value)).value();
}
template <typename Value>
void take(std::optional<Value>& member, const SettingValue& value) {
    const auto* word = std::get_if<std::string>(&value);
    member.reset();
    if (word == nullptr || *word != auto_text) take(member.emplace(), value);
}

// The way back, of the members whose defaults are the options' own.
inline SettingValue setting_of(bool member) {
    return member;
}
inline SettingValue setting_of(double member) {
    return member;
}
inline SettingValue setting_of(const std::vector<std::string>& member) {
    return member;
}
inline SettingValue setting_of(const std::array<double, 2>& member) {
    return std::vector<double>{member[0], member[1]};
}
inline SettingValue setting_of(std::chrono::microseconds member) {
    return std::int64_t{member.count()};
}
inline SettingValue setting_of(std::chrono::seconds member) {
    return std::int64_t{member.count()};
}
inline SettingValue setting_of(Durability member) {
    return static_cast<std::int64_t>(member.commit_steps);
}
inline SettingValue setting_of(const OptimizerKind* member) {
    return std::string(member->word);
}
template <std::integral Integer>
SettingValue setting_of(Integer member) {
    return static_cast<std::int64_t>(member);
}
template <HasWords Enum>
SettingValue setting_of(Enum member) {
    return std::string(word_of(member));
}
template <HasWords Enum>
SettingValue setting_of(std::optional<Enum> member) {
    return std::string(member ? word_of(*member) : auto_text);
}

inline SettingValue setting_of(std::optional<double> member) {
    if (member) return *member;
    return std::string(auto_text);
}

// A path of members, e.g. place_in<CoreOptions, &CoreOptions::device, &DeviceOptions::kind>.
template <auto First, auto... Rest, typename Object>
constexpr auto& member_of(Object& object) noexcept {
    if constexpr (sizeof...(Rest) == 0)
        return object.*First;
    else
        return member_of<Rest...>(object.*First);
}

template <typename Owner, auto... Path>
inline constexpr KeyPlace place_in{
    .fill = [](const SettingValue& value,
               void* object) { take(member_of<Path...>(*static_cast<Owner*>(object)), value); },
    .in_core = std::is_same_v<Owner, CoreOptions>};
// That is read, too: its default is the key's, or depends on another key.
template <typename Owner, auto... Path>
inline constexpr KeyPlace place_with_default_in{
    .fill = place_in<Owner, Path...>.fill,
    .read = [](const void* object) { return setting_of(member_of<Path...>(*static_cast<const Owner*>(object))); },
    .in_core = std::is_same_v<Owner, CoreOptions>};

}  // namespace penstock::zero
