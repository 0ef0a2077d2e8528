#include "trainer/config/io_settings.h"

#include "aio/profile.h"
#include "zero_infinity/threads/hash_threads.h"

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

// Of reads or of writes, whichever is faster: a pass only reads. 0: nothing was measured.
double rate_of(const std::optional<aio::FoundProfile>& found) {
    if (!found) return 0;
    return std::max(found->profile.read_bytes_per_second.value_or(0),
                    found->profile.planned_write_bytes_per_second().value_or(0));
}

double rate_of_all(const std::vector<SettingDirectory>& directories) {
    double sum = 0;
    for (const SettingDirectory& directory : directories) {
        const double rate = rate_of(aio::find_profile(directory.path));
        if (rate == 0) return 0;
        sum += rate;
    }
    return sum;
}

}  // namespace

IoSettings io_settings(const TrainConfig& config, std::uint32_t sharing) {
    IoSettings settings;
    aio::DeviceProfile profile;
    std::string source;
    if (!config.io_block_bytes || !config.io_queue_depth) {
        const std::optional<aio::FoundProfile> found = aio::find_profile(config.swap_directory(), &settings.warnings);
        if (found) profile = found->profile;
        settings.bytes_per_second = rate_of_all(config.swap_directories);
        source = found ? fmt::format("from {} of {}", found->path, found->profile.made)
                       : fmt::format("built in, nothing was measured here; `penstock bench io --tune --dir {}` does",
                                     config.swap_directory());
    }
    settings.bytes_per_second /= sharing;
    apply_keys(config, profile);
    if (!source.empty())
        settings.note = fmt::format("I/O: {}{} ({})", text_of(profile),
                                    sharing == 1 ? "" : fmt::format(", of {} ranks together", sharing), source);
    settings.limits.chunk_bytes = profile.block_bytes;
    settings.limits.in_flight = in_flight_limits(profile);
    return settings;
}

unsigned hash_threads_for(const IoSettings& settings, unsigned compute_threads, unsigned cores) {
    return zero::hash_threads(
        {.bytes_per_second = settings.bytes_per_second, .cores = cores, .compute_threads = compute_threads});
}

}  // namespace penstock::trainer
