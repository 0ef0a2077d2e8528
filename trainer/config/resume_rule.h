// What a run may do otherwise than it was started with when it is resumed: everything that would change the result is
// refused, unless the user names it.
#pragma once

#include "swap/format/manifest.h"
#include "trainer/config/settings.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// The keys that decide the result, as "config.KEY" → spelling, for the client state. REQUIRES: the settings are
// TrainConfig::settings. `threads` is what run.threads became.
store::ClientState config_snapshot(const Settings& settings, unsigned threads);

// A key that changes the result, as the checkpoint has it and as it is now.
struct Difference {
    std::string key;
    std::string before;
    std::string now;
};

// Between the settings and the snapshot that a checkpoint holds; keys that the user gives come first. `threads` is what
// the resumed run computes with.
std::vector<Difference> differences(const Settings& settings, const store::ClientState& stored, unsigned threads);

// `change` has the keys that the user lets differ. Throws Error (usage) that names every other difference, both values
// and the remedies. `checkpoint` is where it lies, for messages.
void check_differences(const std::vector<Difference>& found, const std::vector<std::string>& change,
                       const std::string& checkpoint);
// Throws Error (usage): there is no such key, or one that decides what is stored.
void check_change(const std::vector<std::string>& change);

// What is to be said of a number of steps that moved; empty: nothing.
std::string note_of_steps(const Settings& settings, const store::ClientState& stored);

// The number of compute threads that the run was started with. Throws Error (storage).
unsigned recorded_threads(const store::ClientState& stored);

}  // namespace penstock::trainer
