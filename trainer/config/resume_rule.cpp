#include "trainer/config/resume_rule.h"

#include "aio/words/error.h"
#include "trainer/cli/ckpt_words.h"
#include "trainer/config/key_table.h"
#include "trainer/config/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace penstock::trainer {
namespace {

constexpr std::string_view prefix = "config.";
constexpr std::string_view follows = "follows";
constexpr std::string_view threads_key = "run.threads";

std::string name_of(std::string_view key) {
    return std::string(prefix).append(key);
}

const std::string* find(const store::ClientState& stored, std::string_view key) {
    const auto found = stored.find(name_of(key));
    return found == stored.end() ? nullptr : &found->second;
}

// What the snapshot says of a key; empty for keys that it does not hold.
std::string recorded_text(const Settings& settings, const KeySpec& key, unsigned threads) {
    switch (key.at_resume) {
        case AtResume::free:
        case AtResume::contents:
            return {};
        case AtResume::layout:
        case AtResume::fixed:
            return settings.spelled(key.path);
        case AtResume::derived:
            return std::string(settings.given(key.path) ? settings.spelled(key.path) : follows);
        case AtResume::recorded:
            return std::to_string(threads);
    }
    return {};
}

// Anybody may have written it.
std::string shown(const KeySpec& key, const std::string& text) {
    return text == follows ? fmt::format("not given (it follows {})", key.fallback) : value_text(text);
}

// A key that nobody said has the value in the parentheses of its fallback, where that is one.
std::string_view meant(const KeySpec& key, std::string_view text) {
    return text == Settings::unset ? zero::in_parentheses(key.fallback) : text;
}

std::optional<Difference> difference(const Settings& settings, const KeySpec& key, const store::ClientState& stored,
                                     unsigned threads) {
    const std::string now = recorded_text(settings, key, threads);
    const std::string* before = find(stored, key.path);
    // A key that came into the program after the checkpoint was said by nobody.
    if (now.empty() || meant(key, now) == meant(key, before == nullptr ? Settings::unset : *before))
        return std::nullopt;
    return Difference{.key = std::string(key.path),
                      .before = before == nullptr ? "nothing of that name" : shown(key, *before),
                      .now = shown(key, now)};
}

bool decides_layout(const std::string& key) {
    const KeySpec* spec = find_key(key);
    return spec != nullptr && spec->at_resume == AtResume::layout;
}

}  // namespace

store::ClientState config_snapshot(const Settings& settings, unsigned threads) {
    store::ClientState snapshot;
    for (const KeySpec& key : keys()) {
        if (std::string text = recorded_text(settings, key, threads); !text.empty())
            snapshot[name_of(key.path)] = std::move(text);
    }
    // Not part of the rule, but it lets a resume say that the end has moved.
    snapshot[name_of("run.steps")] = settings.spelled("run.steps");
    return snapshot;
}

std::vector<Difference> differences(const Settings& settings, const store::ClientState& stored, unsigned threads) {
    std::vector<Difference> found;
    // One that follows from a key that the user gives comes after its cause.
    for (const bool given : {true, false}) {
        for (const KeySpec& key : keys()) {
            if (settings.given(key.path) != given) continue;
            if (auto one = difference(settings, key, stored, threads)) found.push_back(std::move(*one));
        }
    }
    return found;
}

void check_differences(const std::vector<Difference>& found, const std::vector<std::string>& change,
                       const std::string& checkpoint) {
    std::vector<std::string> refused;
    std::string allowing;
    bool layout = false;
    for (const Difference& one : found) {
        if (std::find(change.begin(), change.end(), one.key) != change.end()) continue;
        refused.push_back(refused.empty() ? fmt::format("{} is {} but the run in {} was started with {}", one.key,
                                                        one.now, checkpoint, one.before)
                                          : fmt::format("{} is {} and was {}", one.key, one.now, one.before));
        layout = layout || decides_layout(one.key);
        allowing += " --change " + one.key;
    }
    if (refused.empty()) return;
    const std::string reason = layout ? "What is stored was made that way" : "It changes the result";
    const std::string on_purpose = layout ? "" : fmt::format("go on with it on purpose by{}, ", allowing);
    throw Error(ExitCode::usage, fmt::format("{}. {}: set it back, {}or start a new run with another store directory",
                                             fmt::join(refused, "; "), reason, on_purpose));
}

void check_change(const std::vector<std::string>& change) {
    for (const std::string& key : change) {
        if (find_key(key) == nullptr)
            throw Error(ExitCode::usage, fmt::format("--change: key '{}' is unknown; the nearest known one is '{}'",
                                                     value_text(key), nearest_key(key)));
        if (decides_layout(key))
            throw Error(ExitCode::usage, fmt::format("--change {}: what is stored was made by it, and it cannot change "
                                                     "later; start a new run with another store directory",
                                                     key));
    }
}

std::string note_of_steps(const Settings& settings, const store::ClientState& stored) {
    const std::string* before = find(stored, "run.steps");
    const std::string now = settings.spelled("run.steps");
    if (before == nullptr || *before == now) return {};
    const auto kind = find_word<ScheduleKind>(settings.text("scheduler.type"));
    const bool moves = kind != ScheduleKind::constant && kind != ScheduleKind::warmup &&
                       !settings.given("scheduler.params.total_num_steps");
    return fmt::format("run.steps was {} and is {}{}", value_text(*before), now,
                       moves ? "; the learning rate's end moves with it "
                               "(scheduler.params.total_num_steps holds it where it was)"
                             : "");
}

unsigned recorded_threads(const store::ClientState& stored) {
    const std::string* text = find(stored, threads_key);
    const auto threads = text == nullptr ? std::nullopt : number_in(*text);
    if (!threads || *threads < 1 || static_cast<double>(*threads) > find_key(threads_key)->range.high)
        throw Error(ExitCode::storage,
                    "the checkpoint does not say how many threads its run used: it was not written by this "
                    "program; name another store directory");
    return static_cast<unsigned>(*threads);
}

}  // namespace penstock::trainer
