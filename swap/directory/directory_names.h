// What is in a directory.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace penstock::store {

// What a run spills, where the file system has no files without a name: only while it is being opened, and after a kill
// in that moment. Whoever has the directory's lock may remove it.
inline constexpr const char* spill_file_name = "penstock.spill";

// The names in the directory open as `directory_fd`, without "." and "..", sorted, put into `names`. Returns 0, or
// errno when it could not be listed to its end. The descriptor's own position stays.
int list_names(int directory_fd, std::vector<std::string>& names);

// What may be in a directory in which a store is made: the device's profile, the snapshots of a store that was here,
// its spill, and what the file system made.
bool may_stand_beside(std::string_view name) noexcept;

// Whether the directory has that name; a link is not followed. Throws Error (storage) when that cannot be found out:
// what cannot be asked for is not missing.
bool has_name(int directory_fd, const std::string& directory_path, const char* name);

}  // namespace penstock::store
