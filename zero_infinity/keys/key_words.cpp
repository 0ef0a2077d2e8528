// What is said of a key, and how the package has it.
#include "aio/words/byte_count.h"
#include "zero_infinity/keys/key_spec.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace penstock::zero {
namespace {

std::string limit_text(double bytes) {
    return bytes == 0 ? "0" : bytes_text(static_cast<std::uint64_t>(bytes));
}

std::string range_text(const KeySpec& key) {
    if (key.type == KeyType::bytes || key.type == KeyType::bytes_or_auto)
        return fmt::format("from {} to {}", limit_text(key.range.low), limit_text(key.range.high));
    return fmt::format("from {} to {}", key.range.low, key.range.high);
}

}  // namespace

bool same_word(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b,
                              [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

KeySpec as_package(const KeySpec& key) {
    KeySpec own = key;
    const PackageRule& rule = key.package;
    if (!rule.fallback.empty()) own.fallback = rule.fallback;
    if (rule.type) own.type = *rule.type;
    if (rule.range.high > 0) own.range = {rule.range.low, rule.range.high};
    if (!rule.choices.empty()) own.choices = rule.choices;
    return own;
}

std::string expectation(const KeySpec& key) {
    switch (key.type) {
        case KeyType::boolean:
            return "true or false";
        case KeyType::integer:
            if (key.range.low == key.range.high) return fmt::format("{}", key.range.low);
            return "an integer " + range_text(key);
        case KeyType::number:
            return "a number " + range_text(key);
        case KeyType::bytes:
            return "bytes " + range_text(key) + ", as a number or text such as \"300MiB\" (KiB, MiB, GiB, TiB)";
        case KeyType::integer_or_word:
            return fmt::format("an integer {}, or \"{}\"", range_text(key), key.choices.front());
        case KeyType::bytes_or_auto:
            return "\"auto\", or bytes " + range_text(key) + ", as a number or text such as \"300MiB\"";
        case KeyType::number_or_auto:
            return "\"auto\", or a number " + range_text(key);
        case KeyType::text:
            return "text that is not empty";
        case KeyType::any_text:
            return "text";
        case KeyType::choice:
            return fmt::format("\"{}\"", fmt::join(key.choices, "\" or \""));
        case KeyType::pair:
            return "two numbers in brackets, each " + range_text(key);
        case KeyType::names:
            return "a list of names, e.g. [\"embedding\"]";
        case KeyType::directories:
            return "a path, or a list of paths or of {\"path\": ..., \"bandwidth\": bytes per second or \"auto\"}";
        case KeyType::groups:
            return "a list of groups, each " + group_expectation(key);
        case KeyType::anything:
            return "anything";
    }
    return "";
}

std::string group_expectation(const KeySpec& key) {
    return fmt::format("a pattern and keys of {}, such as {{\"params\": \"*.norm*\", \"weight_decay\": 0}}",
                       key.choices.front());
}

std::string package_expectation(const KeySpec& key) {
    std::string text = expectation(key);
    for (const Alias& alias : key.package.aliases) text += fmt::format(" or \"{}\"", alias.spelling);
    if (!key.package.automatic.empty()) text += ", or \"auto\"";
    return text;
}

}  // namespace penstock::zero
