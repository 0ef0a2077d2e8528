// The configuration as a flat map from key to value: every key of the table has a value of its type, or is known to be
// unset.
#pragma once

#include "trainer/config/key_table.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::trainer {

// A value type without references to where it came from. Values are within their ranges.
class Settings {
   public:
    enum class Source : std::uint8_t { fallback, file, command_line, derived };

    // Reads JSON with comments; `file` is what messages call it. `overrides` are "key=value" of the command line, each
    // value JSON, or else text. Throws Error (usage) naming the key: unknown (with the nearest known one), repeated, of
    // the wrong type, out of range, required and missing.
    static Settings parse(std::string_view json, const std::string& file, const std::vector<std::string>& overrides);

    Settings() = default;
    explicit Settings(std::string file) : file_(std::move(file)) {}  // without any value

    // REQUIRES (of all below): `key` is in the table; for values, that it is set and of that type.
    bool has(std::string_view key) const;      // it has a value
    bool given(std::string_view key) const;    // file or command line says it
    bool derived(std::string_view key) const;  // it follows from other keys
    // The older word that it was said with (KeySpec::older); empty: it was not.
    std::string_view said_as(std::string_view key) const;
    bool is_auto(std::string_view key) const;  // of a key that allows it: then it has no number
    const SettingValue& value(std::string_view key) const;
    bool boolean(std::string_view key) const;
    std::int64_t integer(std::string_view key) const;
    std::uint64_t bytes(std::string_view key) const;
    double number(std::string_view key) const;
    const std::string& text(std::string_view key) const;
    const std::vector<double>& numbers(std::string_view key) const;
    const std::vector<std::string>& names(std::string_view key) const;
    const std::vector<SettingGroup>& groups(std::string_view key) const;
    const std::vector<SettingDirectory>& directories(std::string_view key) const;

    static constexpr std::string_view unset = "unset";
    // spelled() of its value; `unset` without one.
    std::string spelled(std::string_view key) const;

    // As if the file said so.
    void give(std::string_view key, SettingValue value, std::string said_as = {});
    void forget(std::string_view key);  // as if nobody said so
    // As if the table said so.
    void fall_back(std::string_view key, SettingValue value);
    // Fills in what follows from other keys.
    void derive(std::string_view key, SettingValue value);

    const std::string& file() const noexcept { return file_; }

   private:
    struct Entry {
        SettingValue value;
        Source source = Source::fallback;
        std::string said_as = {};
    };
    friend class SettingsReader;
    template <typename Value>
    const Value& get(std::string_view key) const;

    std::string file_;
    std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace penstock::trainer
