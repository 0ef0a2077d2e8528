#include "trainer/config/resume_rule.h"

#include "aio/words/error.h"
#include "trainer/config/key_table.h"
#include "trainer/config/schedule.h"

#include <fmt/format.h>

#include <charconv>

namespace penstock::trainer {
namespace {

constexpr std::string_view prefix = "config.";
constexpr std::string_view follows = "follows";

std::string name_of(const KeySpec& key) {
    return std::string(prefix).append(key.path);
}

const std::string* find(const store::ClientState& stored, const std::string& name) {
    const auto found = stored.find(name);
    return found == stored.end() ? nullptr : &found->second;
}

// What the snapshot says of a key; empty for keys that it does not hold.
std::string recorded_text(const Settings& settings, const KeySpec& key) {
    if (key.at_resume == AtResume::fixed) return settings.spelled(key.path);
    if (key.at_resume == AtResume::derived)
        return std::string(settings.given(key.path) ? settings.spelled(key.path) : follows);
    return {};
}

[[noreturn]] void refuse(const KeySpec& key, const std::string& stored, const std::string& now,
                         const std::string& checkpoint) {
    throw Error(
        ExitCode::usage,
        fmt::format(
            "{} is {} but the run in {} was started with {}, and it changes the result; set it back, or start a "
            "new run with another store directory",
            key.path, now, checkpoint, stored));
}

void check_key(const Settings& settings, const KeySpec& key, const store::ClientState& stored,
               const std::string& checkpoint) {
    const std::string* before = find(stored, name_of(key));
    if (key.at_resume == AtResume::recorded) {
        const std::string now = settings.spelled(key.path);
        if (before != nullptr && now != "0" && now != *before) refuse(key, *before, now, checkpoint);
        return;
    }
    const std::string now = recorded_text(settings, key);
    if (now.empty() || (before != nullptr && now == *before)) return;
    // A key that came into the program after the checkpoint, and that says nothing.
    if (before == nullptr && !settings.has(key.path)) return;
    const std::string derived = fmt::format("not given (it follows {})", key.fallback);
    const std::string was = before == nullptr ? "nothing of that name" : *before == follows ? derived : *before;
    refuse(key, was, now == follows ? derived : now, checkpoint);
}

}  // namespace

store::ClientState config_snapshot(const Settings& settings, unsigned threads) {
    store::ClientState snapshot;
    for (const KeySpec& key : keys()) {
        if (key.at_resume == AtResume::recorded) snapshot[name_of(key)] = std::to_string(threads);
        if (std::string text = recorded_text(settings, key); !text.empty()) snapshot[name_of(key)] = std::move(text);
    }
    // Not part of the rule, but it lets a resume say that the end has moved.
    snapshot[std::string(prefix) + "run.steps"] = settings.spelled("run.steps");
    return snapshot;
}

std::vector<std::string> check_resume(const Settings& settings, const store::ClientState& stored,
                                      const std::string& checkpoint) {
    // Keys that the user gives come first: one that follows from them would be named instead of the cause.
    for (const bool given : {true, false}) {
        for (const KeySpec& key : keys()) {
            if (settings.given(key.path) == given) check_key(settings, key, stored, checkpoint);
        }
    }
    std::vector<std::string> notes;
    const std::string* steps = find(stored, std::string(prefix) + "run.steps");
    if (steps != nullptr && *steps != settings.spelled("run.steps")) {
        const auto kind = find_word<ScheduleKind>(settings.text("scheduler.type"));
        const bool schedule = kind != ScheduleKind::constant && kind != ScheduleKind::warmup &&
                              !settings.given("scheduler.params.total_num_steps");
        notes.push_back(fmt::format("run.steps was {} and is {}{}", *steps, settings.spelled("run.steps"),
                                    schedule ? "; the learning rate's end moves with it" : ""));
    }
    return notes;
}

unsigned recorded_threads(const store::ClientState& stored) {
    const std::string* text = find(stored, "config.run.threads");
    unsigned threads = 0;
    if (text != nullptr) std::from_chars(text->data(), text->data() + text->size(), threads);
    if (threads == 0) {
        throw Error(ExitCode::storage,
                    "the checkpoint does not say how many threads its run used: it was not written by this "
                    "program; name another store directory");
    }
    return threads;
}

}  // namespace penstock::trainer
