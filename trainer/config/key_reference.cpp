// What is said about keys: suggestions, expectations, the reference.
#include "trainer/cli/edit_distance.h"
#include "trainer/config/key_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace penstock::trainer {
namespace {

std::string_view last_word(std::string_view path) {
    const auto dot = path.rfind('.');
    return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::vector<std::string_view> sections(Client client) {
    std::vector<std::string_view> found;
    for (const KeySpec* key : keys_of(client)) {
        for (auto dot = key->path.find('.'); dot != std::string_view::npos; dot = key->path.find('.', dot + 1)) {
            const auto section = key->path.substr(0, dot);
            if (std::find(found.begin(), found.end(), section) == found.end()) found.push_back(section);
        }
    }
    return found;
}

const char* resume_text(AtResume rule) {
    switch (rule) {
        case AtResume::free:
            return "yes";
        case AtResume::layout:
            return "no";
        case AtResume::fixed:
            return "by --change";
        case AtResume::derived:
            return "by --change; follows its source where not given";
        case AtResume::recorded:
            return "by --change; 0 keeps the first start's";
        case AtResume::contents:
            return "the path; the contents by --change";
    }
    return "";
}

std::string shown_default(const KeySpec& key) {
    const std::string text = default_text(key);
    if (text.empty()) return "required";
    const std::string_view said = zero::in_parentheses(text);
    return said.empty() ? fmt::format("`{}`", text) : std::string(said);
}

// Of a key of the package that is not obeyed as it is written.
std::string what_becomes_of(const KeySpec& key) {
    const PackageRule& rule = key.package;
    if (rule.effect == Effect::without) return "without effect";
    if (rule.effect == Effect::off) return "refused where it is switched on";
    if (rule.becomes.empty()) return "read as the offload sections say";
    return rule.value.empty() ? fmt::format("read as `{}`", rule.becomes)
                              : fmt::format("read as `{}` \"{}\"", rule.becomes, rule.value);
}

}  // namespace

std::string nearest_key(std::string_view unknown, Client client) {
    std::vector<std::string_view> names = sections(client);
    for (const KeySpec* key : keys_of(client)) names.push_back(key->path);
    std::string_view best;
    std::size_t best_distance = SIZE_MAX;
    for (const std::string_view name : names) {
        // A right word in a wrong section is nearer than a wrong word: it costs 1, whatever the sections are.
        const std::size_t word_distance = edit_distance(last_word(unknown), last_word(name)) + 1;
        std::size_t distance = edit_distance(unknown, name);
        if (word_distance <= 3) distance = std::min(distance, word_distance);
        if (distance < best_distance) {
            best_distance = distance;
            best = name;
        }
    }
    return std::string(best);
}

std::string reference_table() {
    std::string table = "| key | expects | default | may change at resume | what it is |\n|---|---|---|---|---|\n";
    for (const KeySpec& key : keys())
        table += fmt::format("| `{}` | {} | {} | {} | {} |\n", key.path, expectation(key), shown_default(key),
                             resume_text(key.at_resume), key.help);
    return table;
}

std::string package_reference() {
    std::string taken = "| key | expects | default | `\"auto\"` becomes | what it is |\n|---|---|---|---|---|\n";
    std::string others = "| key | what becomes of it | because |\n|---|---|---|\n";
    for (const KeySpec* key : keys_of(Client::package)) {
        const PackageRule& rule = key->package;
        if (rule.effect == Effect::obeyed) {
            const KeySpec own = as_package(*key);
            taken += fmt::format("| `{}` | {} | {} | {} | {} |\n", own.path, package_expectation(own),
                                 shown_default(own), rule.automatic, own.help);
        } else {
            others += fmt::format("| `{}` | {} | {} |\n", key->path, what_becomes_of(*key),
                                  rule.why.empty() ? key->help : rule.why);
        }
    }
    return taken + "\n" + others;
}

}  // namespace penstock::trainer
