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
inline constexpr std::size_t lock_file_bytes = 2 * lock_text_bytes;  // the same text twice: a sector may go bad
inline constexpr std::size_t max_job_bytes = 200;
inline constexpr std::size_t max_host_bytes = 64;

// 1 to max_job_bytes bytes without control characters.
bool is_possible_job(std::string_view job) noexcept;

// Text and its check. REQUIRES: is_possible_job(), host at most max_host_bytes.
std::string format(const LockText& lock);
// Nothing when it is not one of ours, or not as it was written (older programs wrote no check); never throws.
std::optional<LockText> parse_lock(std::string_view text);

std::string lock_file(const LockText& lock);
std::optional<LockText> parse_lock_file(std::string_view file);  // the first copy that is right
// What a start leaves that ended before its lock was on the disk: nothing, zeros, or the beginning of a text.
bool is_unfinished_lock(std::string_view file);

std::optional<StoreUuid> parse_uuid(std::string_view text);  // as to_string() writes it

}  // namespace penstock::store
