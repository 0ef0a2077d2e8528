// Runs a piece of a test where it may mount file systems: in a child with a mount namespace of its own (and a user
// namespace when it is not root).
#pragma once

#include <functional>
#include <string>

namespace penstock::testing {

struct MountOutcome {
    bool allowed = false;  // false: this machine lets nobody mount; skip with a word
    std::string text;      // what `body` returned
};

// `prepare` mounts and returns whether it could; `body` runs after it. Both in the child.
MountOutcome run_with_mounts(const std::function<bool()>& prepare, const std::function<std::string()>& body);

bool mount_tmpfs(const std::string& path, std::uint64_t bytes);
bool mount_read_only(const std::string& path);  // a read-only view of the directory over itself

}  // namespace penstock::testing
