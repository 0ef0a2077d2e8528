// What is known of one key of a configuration. Names are DeepSpeed's wherever DeepSpeed has one. Two clients have keys:
// the program, and the Python package, which brings its own model and data.
#pragma once

#include "zero_infinity/keys/setting_value.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace penstock::zero {

enum class KeyType : std::uint8_t {
    boolean,
    integer,
    number,
    bytes,            // a number of bytes, or text such as "300MiB"
    integer_or_word,  // an integer, or the word in KeySpec::choices
    bytes_or_auto,
    number_or_auto,
    text,
    any_text,     // or none: ""
    choice,       // one of KeySpec::choices
    pair,         // two numbers
    names,        // a list of text
    directories,  // a path, or a list of paths and of sections with path and bandwidth
    groups,       // a list of sections: a pattern `params`, and keys of the section that KeySpec::choices names
    anything,     // of keys without effect: not looked at
};

enum class Client : std::uint8_t { program, package };

// What the package does with a key.
enum class Effect : std::uint8_t {
    none,  // it does not have it: the program's alone
    obeyed,
    translated,  // another spelling of PackageRule::becomes, or of a value: `why`
    without,     // DeepSpeed's, and nothing is lost where it is not looked at: `why`
    off,         // DeepSpeed's, refused where it is switched on, because results would be others: `why`
};

// Inclusive bounds of an integer, a number, each number of a pair, or a number of bytes.
struct KeyRange {
    double low = 0;
    double high = 0;
};

// Another word for a value.
struct Alias {
    std::string_view spelling;
    std::string_view value;
};

// How the package reads a key; what is empty is as the program has it.
struct PackageRule {
    Effect effect = Effect::none;
    std::string_view why = {};        // a clause
    std::string_view automatic = {};  // what "auto" becomes where the client knows no value; empty: "auto" is no value
    bool needed = false;  // of a number that trains other weights: where nothing is known, "auto" becomes nothing
    std::string_view fallback = {};  // as KeySpec::fallback
    KeyRange range = {};             // high 0: as the program has it
    std::optional<KeyType> type = {};
    std::span<const std::string_view> choices = {};
    std::span<const Alias> aliases = {};  // in any case of letters, and so are the choices then
    std::string_view becomes = {};        // a key
    std::string_view value = {};          // its value where this one is true; empty: this one's
};

inline constexpr PackageRule obeyed{.effect = Effect::obeyed};  // as most are

// What happens when a run is resumed with another value than it was started with.
enum class AtResume : std::uint8_t {
    free,      // taken: it does not change the result
    layout,    // refused: what is stored was made by it
    fixed,     // it would change the result: refused unless the user asks for it (--change)
    derived,   // the same where the file gives it; a value that follows from another key follows it
    recorded,  // the same, but 0 means the value of the first start
    contents,  // a path that may change while the contents stay, or with --change
};

// The member that a key fills: of CoreOptions, or of a client's own configuration, whose table says which
// (keys/key_place.h). Both calls are given an object of that type.
struct KeyPlace {
    void (*fill)(const SettingValue& value, void* object) = nullptr;  // null: the client does it
    SettingValue (*read)(const void* object) = nullptr;               // the member's, which may be the key's default
    bool in_core = false;                                             // of CoreOptions
};

// What the parentheses of a key's fallback say; empty: it has none.
constexpr std::string_view in_parentheses(std::string_view fallback) noexcept {
    return fallback.starts_with('(') ? fallback.substr(1, fallback.size() - 2) : std::string_view{};
}

struct KeySpec {
    std::string_view path;  // "model.hidden": section and key, joined by dots
    KeyType type;
    std::string_view fallback;  // JSON text; "(…)": follows from what the parentheses say; empty: the member's
    KeyRange range;             // of numeric types
    std::span<const std::string_view> choices;  // of `choice`; of integer_or_word, one; of `groups`, a section
    AtResume at_resume;
    std::string_view help;  // one line
    KeyPlace place = {};
    PackageRule package = {};
    bool program = true;                // it has the key
    std::span<const Alias> older = {};  // words of before, which are still taken: said_as() of the settings

    bool of(Client client) const noexcept {
        return client == Client::program ? program : package.effect != Effect::none;
    }
    // In the table.
    constexpr KeySpec taking(std::span<const Alias> words) const {
        KeySpec key = *this;
        key.older = words;
        return key;
    }
    // A key of both.
    constexpr KeySpec shared(PackageRule rule) const {
        KeySpec key = *this;
        key.package = rule;
        return key;
    }
    constexpr KeySpec package_only(PackageRule rule) const {
        KeySpec key = shared(rule);
        key.program = false;
        return key;
    }
};

bool same_word(std::string_view a, std::string_view b);  // in any case of letters
KeySpec as_package(const KeySpec& key);                  // with what PackageRule says otherwise

// "an integer from 1 to 1024", "\"rms\" or \"layer\"": for messages and the reference.
std::string expectation(const KeySpec& key);
std::string package_expectation(const KeySpec& key);  // with the aliases of a key of the package
std::string group_expectation(const KeySpec& key);    // of one element of a list of groups

}  // namespace penstock::zero
