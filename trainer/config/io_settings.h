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
    double bytes_per_second = 0;        // of all devices, by their profiles; 0: not measured, or nothing is auto
};

// Looks for the profile nearest to the store's directory when a key is "auto". `sharing`: ranks whose stores are on the
// same devices: their rates are of one of them, and the session divides the bounds. Throws Error (usage) for a profile
// that is not whole (aio/profile.h).
IoSettings io_settings(const TrainConfig& config, std::uint32_t sharing = 1);

// Threads that hash tiles beside so many of compute, of cores that are this process's (threads/hash_threads.h).
unsigned hash_threads_for(const IoSettings& settings, unsigned compute_threads, unsigned cores);

}  // namespace penstock::trainer
