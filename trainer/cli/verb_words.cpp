#include "trainer/cli/verb_words.h"

#include "trainer/cli/edit_distance.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>

namespace penstock::trainer {
namespace {

std::string complaint(const std::string& word, const std::vector<std::string>& verbs) {
    const auto nearest = std::min_element(verbs.begin(), verbs.end(), [&](const auto& a, const auto& b) {
        return edit_distance(word, a) < edit_distance(word, b);
    });
    // Of a short word nearly every other is near.
    const bool similar = edit_distance(word, *nearest) <= std::max<std::size_t>(1, nearest->size() / 2);
    return fmt::format("there is no verb '{}'{}; there are: {}", word,
                       similar ? fmt::format("; the nearest is '{}'", *nearest) : "", fmt::join(verbs, ", "));
}

}  // namespace

std::string complaint_about_verb(const CLI::App& app, const std::vector<std::string>& words) {
    const CLI::App* at = &app;
    for (const std::string& word : words) {
        const std::vector<const CLI::App*> known = at->get_subcommands([](const CLI::App*) { return true; });
        if (known.empty()) return {};
        if (word.starts_with('-')) continue;  // what stands before a verb has no value: --json, --help
        const auto found =
            std::find_if(known.begin(), known.end(), [&](const CLI::App* verb) { return verb->get_name() == word; });
        if (found == known.end()) {
            std::vector<std::string> verbs;
            for (const CLI::App* verb : known)
                if (!verb->get_group().empty()) verbs.push_back(verb->get_name());  // else it is not listed
            return complaint(word, verbs);
        }
        at = *found;
    }
    return {};
}

std::vector<std::string> help_as_option(std::vector<std::string> words) {
    if (words.empty() || words.front() != "help") return words;
    words.erase(words.begin());
    words.emplace_back("--help");
    return words;
}

std::string not_empty(const std::string& value) {
    return value.empty() ? "the value is empty; give one or leave the option out" : "";
}

}  // namespace penstock::trainer
