#include "zero_infinity/session/skipped_steps.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string_view>

namespace penstock::zero {
namespace {

// All of it, 1 at least.
std::optional<std::uint64_t> number_in(std::string_view text) {
    std::uint64_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number == 0) return std::nullopt;
    return number;
}

// Takes what is before the first `end`, or all, off the text.
std::string_view take(std::string_view& text, char end) {
    const std::size_t at = text.find(end);
    const std::string_view taken = text.substr(0, at);
    text.remove_prefix(at == std::string_view::npos ? text.size() : at + 1);
    return taken;
}

}  // namespace

SkippedSteps::SkippedSteps(std::span<const UnitLayout> units) : first_{0} {
    for (const UnitLayout& unit : units) first_.push_back(first_.back() + unit.spec().parameters.size());
}

void SkippedSteps::read(const std::string& text) {
    std::string_view rest = text;
    std::uint64_t number = 0;
    while (!rest.empty()) {
        std::string_view entry = take(rest, ' ');
        const bool next = entry.find(':') == std::string_view::npos;
        const std::optional<std::uint64_t> distance = next ? 1 : number_in(take(entry, ':'));
        const std::optional<std::uint64_t> count = number_in(entry);
        if (!distance || !count || *distance > first_.back() - number)
            throw Error(ExitCode::storage,
                        "the steps that parameters have skipped are recorded as no session does it: "
                        "the client state was changed; go back to a snapshot");
        number += *distance;
        counts_[number] = *count;
    }
}

std::uint64_t SkippedSteps::of(ParameterId parameter) const {
    const auto found = counts_.find(number(parameter));
    return found == counts_.end() ? 0 : found->second;
}

std::string SkippedSteps::text() const {
    std::string text;
    std::size_t last = 0;
    for (const auto& [number, count] : counts_) {
        if (!text.empty()) text += ' ';
        text += number == last + 1 ? fmt::format("{}", count) : fmt::format("{}:{}", number - last, count);
        last = number;
    }
    return text;
}

}  // namespace penstock::zero
