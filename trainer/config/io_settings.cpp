#include "trainer/config/io_settings.h"

#include "aio/profile.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::trainer {
namespace {

std::string text_of(const aio::DeviceProfile& profile) {
    return fmt::format("blocks of {} KiB, {} KiB in flight for reads and {} KiB for writes", profile.block_bytes >> 10,
                       profile.read_in_flight_bytes >> 10, profile.write_in_flight_bytes >> 10);
}

// A key that is given goes before the profile; the bytes in flight hold at least a block.
void apply_keys(const TrainConfig& config, aio::DeviceProfile& profile) {
    if (config.io_block_bytes) profile.block_bytes = *config.io_block_bytes;
    const std::uint64_t block = profile.block_bytes;
    if (config.io_queue_depth) {
        profile.read_in_flight_bytes = block * *config.io_queue_depth;
        profile.write_in_flight_bytes = block * *config.io_queue_depth;
    }
    profile.read_in_flight_bytes = std::max(profile.read_in_flight_bytes, block);
    profile.write_in_flight_bytes = std::max(profile.write_in_flight_bytes, block);
}

}  // namespace

IoSettings io_settings(const TrainConfig& config) {
    IoSettings settings;
    aio::DeviceProfile profile;
    std::string source;
    if (!config.io_block_bytes || !config.io_queue_depth) {
        const std::optional<aio::FoundProfile> found = aio::find_profile(config.swap_directory(), &settings.warnings);
        if (found) profile = found->profile;
        source = found ? fmt::format("from {} of {}", found->path, found->profile.made)
                       : fmt::format("built in, nothing was measured here; `penstock bench io --tune --dir {}` does",
                                     config.swap_directory());
    }
    apply_keys(config, profile);
    if (!source.empty()) settings.note = fmt::format("I/O: {} ({})", text_of(profile), source);
    settings.limits.chunk_bytes = profile.block_bytes;
    settings.limits.in_flight = in_flight_limits(profile);
    return settings;
}

}  // namespace penstock::trainer
