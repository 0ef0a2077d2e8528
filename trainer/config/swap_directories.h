// The directories of the store, one per device, and how many of its tiles each gets.
#pragma once

#include "trainer/config/settings.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::trainer {

// The nvme_path of either offload section, else run.swap_directory; where more than one is given, they must agree.
// Throws Error (usage).
std::vector<SettingDirectory> swap_directories(const Settings& settings);

struct SwapShares {
    std::vector<std::uint16_t> shares;  // empty: equal ones
    std::string note;                   // one line for the log; empty where there is nothing to say
};

// Of a new store, by the bandwidths that are given or that the directories' profiles have; a store that is there has
// its own. Throws Error (usage) for a profile that is not whole (aio/profile.h).
SwapShares swap_shares(const std::vector<SettingDirectory>& directories);

}  // namespace penstock::trainer
