// Which keys a run may change when it is resumed: everything that would change the result is refused.
#pragma once

#include "swap/format/manifest.h"
#include "trainer/config/settings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::trainer {

// The keys that decide the result, as "config.KEY" → spelling, for the client state. REQUIRES: the settings are
// TrainConfig::settings. `threads` is what run.threads became.
store::ClientState config_snapshot(const Settings& settings, unsigned threads);

// Compares the settings with the snapshot that a checkpoint holds. Returns notes on what changed and is allowed. Throws
// Error (usage) naming the first key that must not change, both values and the remedy. `checkpoint` is where it lies,
// for messages.
std::vector<std::string> check_resume(const Settings& settings, const store::ClientState& stored,
                                      const std::string& checkpoint);

// The number of compute threads a resumed run must use.
unsigned recorded_threads(const store::ClientState& stored);

}  // namespace penstock::trainer
