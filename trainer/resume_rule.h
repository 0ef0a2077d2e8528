// Which keys a run may change when it is resumed: everything that would change the result is refused.
#pragma once

#include "swap/manifest.h"
#include "trainer/settings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// The keys that decide the result, as "config.KEY" → spelling, for the client state. REQUIRES: make_config() has filled
// the settings. `threads` is what run.threads became.
ClientState config_snapshot(const Settings& settings, unsigned threads);

// Compares the settings with the snapshot that a checkpoint holds. Returns notes on what changed and is allowed. Throws
// Error (usage) naming the first key that must not change, both values and the remedy. `checkpoint` is where it lies,
// for messages.
std::vector<std::string> check_resume(const Settings& settings, const ClientState& stored,
                                      const std::string& checkpoint);

// The number of compute threads a resumed run must use.
unsigned recorded_threads(const ClientState& stored);

}  // namespace penstock
