// What is in a directory.
#pragma once

#include <string>
#include <vector>

namespace penstock::store {

// The names in the directory open as `directory_fd`, without "." and "..", sorted, put into `names`. Returns 0, or
// errno when it could not be listed to its end. The descriptor's own position stays.
int list_names(int directory_fd, std::vector<std::string>& names);

}  // namespace penstock::store
