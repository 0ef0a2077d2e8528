// What the file `lock` of a store directory says: whose the directory is, and who held it last.
#pragma once

#include "swap/format/manifest.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock::store {

// The directory's place in a store: device `device` of `device_count` of the store whose first directory has uuid
// `store`.
struct DeviceRole {
    StoreUuid store{};
    std::uint32_t device = 0;
    std::uint32_t device_count = 0;
    bool operator==(const DeviceRole&) const = default;
};

struct LockText {
    std::string job;
    StoreUuid uuid{};                // of the directory
    std::optional<DeviceRole> role;  // nothing before a store was created in it
    long pid = 0;                    // of the last holder; 0 when the line is unreadable
    std::string host;
    std::string since;  // when it took the lock, UTC
    bool operator==(const LockText&) const = default;
};

inline constexpr std::size_t lock_text_bytes = 512;  // always, padded with line ends: one sector, overwritten in place
inline constexpr std::size_t max_job_bytes = 200;

std::string format(const LockText& lock);                   // REQUIRES: job at most max_job_bytes, host at most 64
std::optional<LockText> parse_lock(std::string_view text);  // nothing when it is not one of ours; never throws

}  // namespace penstock::store
