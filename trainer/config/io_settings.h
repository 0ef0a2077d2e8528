// How the run talks to its device: the keys aio.block_size and aio.queue_depth, and for "auto" the device's profile.
#pragma once

#include "aio/io.h"
#include "trainer/config/config.h"

#include <string>
#include <vector>

namespace penstock::trainer {

struct IoSettings {
    aio::IoLimits limits;
    std::string note;                   // one line for the log: where "auto" came from; empty when nothing is auto
    std::vector<std::string> warnings;  // of profiles that were passed over
};

// Looks for the profile nearest to the store's directory when a key is "auto". Throws Error (usage) for a profile that
// is not whole (aio/profile.h).
IoSettings io_settings(const TrainConfig& config);

}  // namespace penstock::trainer
