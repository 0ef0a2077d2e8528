// What was measured about a device, kept in a file on it: `penstock bench io --tune` writes it, configurations use it
// through "auto".
#pragma once

#include "aio/admission.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::aio {

inline constexpr const char* profile_name = "penstock-profile.json";

// Rates are of direct I/O; none where not measured. The file has a version; a newer one is refused. A profile is
// advice: it changes speed, never bits.
struct DeviceProfile {
    std::string made;                      // "2026-11-21T10:00:00Z"
    std::string machine;                   // kernel, file system and device, as a person would say it
    std::uint32_t block_bytes = 1U << 20;  // IoLimits::chunk_bytes
    std::uint64_t read_in_flight_bytes = 8ULL << 20;
    std::uint64_t write_in_flight_bytes = 8ULL << 20;
    std::optional<double> read_bytes_per_second;
    std::optional<double> overwrite_bytes_per_second;
    std::optional<double> first_write_bytes_per_second;
    std::optional<double> sustained_write_bytes_per_second;  // after the drive's cache has run out
    std::optional<std::uint64_t> write_cache_bytes;          // written before the rate fell; none: it did not fall

    // What a plan may count on for writes: the sustained rate where it is known.
    std::optional<double> planned_write_bytes_per_second() const noexcept {
        return sustained_write_bytes_per_second ? sustained_write_bytes_per_second : overwrite_bytes_per_second;
    }
};

// The bounds that the profile's bytes in flight mean: prefetch, throttle and scrub in the same proportions as the
// defaults, none below a block.
InFlightLimits in_flight_limits(const DeviceProfile& profile) noexcept;

struct FoundProfile {
    DeviceProfile profile;
    std::string path;
};

// The profile nearest to `directory`: in it, or in a parent on the same file system. Nothing when there is none. Throws
// Error (usage) for one of this user's that cannot be read or understood, naming the file and what is wrong: a setting
// that somebody measured is not dropped in silence. Passed over, with a line for each in `notes`: what is neither this
// user's nor root's, what others may write to or replace (a directory that everybody may write to, without the sticky
// bit), and root's where it is no good, for this user could do nothing about it.
std::optional<FoundProfile> find_profile(const std::string& directory, std::vector<std::string>* notes = nullptr);

// Replaces the file at one instant (temporary name, fsync, rename). Throws Error (storage).
void write_profile(const std::string& path, const DeviceProfile& profile);

}  // namespace penstock::aio
