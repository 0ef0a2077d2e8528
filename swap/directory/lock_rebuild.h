// The file `lock`, made again where it is lost.
#pragma once

#include <string>
#include <vector>

namespace penstock::store {

// Whose a store's directory is stands in its lock, and but for the job in every manifest, too. Where the lock of a
// directory is missing, damaged, no regular file, or another store's beside tiles that the manifests name, it is made
// anew, durably, from the manifests in the first; what was there is renamed to "lock.damaged". `paths` are the store's
// directories in the order of its creation. Returns one line for each lock that was made; changes nothing where all are
// the store's, or where the first directory has neither lock nor manifests.
//
// Throws Error: usage (an impossible job, the wrong number of directories), storage (a lock cannot be read or is held
// by a running process; the manifests are of no store, or of two).
std::vector<std::string> rebuild_locks(const std::vector<std::string>& paths, const std::string& job);

}  // namespace penstock::store
