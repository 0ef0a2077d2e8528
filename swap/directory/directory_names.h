// What is in a directory.
#pragma once

#include <string>
#include <vector>

namespace penstock::store {

// The names in the directory open as `directory_fd`, without "." and "..", sorted, put into `names`. Returns 0, or
// errno when it could not be listed to its end. The descriptor's own position stays.
int list_names(int directory_fd, std::vector<std::string>& names);

// Whether the directory has that name; a link is not followed. Throws Error (storage) when that cannot be found out:
// what cannot be asked for is not missing.
bool has_name(int directory_fd, const std::string& directory_path, const char* name);

}  // namespace penstock::store
