// A loop device over a file, with a file system on it. Root only.
#pragma once

#include "swap/directory/descriptor.h"

#include <string>

namespace penstock::testing {

enum class FileSystem : std::uint8_t { ext4, xfs };
const char* to_string(FileSystem kind);

// Whether its mkfs is on this machine.
bool can_make(FileSystem kind);
// On the file `image`. Throws std::runtime_error with what mkfs said.
void make_file_system(FileSystem kind, const std::string& image);

// `file` as a block device, mounted at the directory `mount_point`, until it is destroyed. The device is set to detach
// itself with its last user, so it ends with the test's mount namespace too, however the test ends.
class MountedLoop {
   public:
    // Throws std::runtime_error where this machine does not allow it, or the file system cannot be mounted.
    MountedLoop(const std::string& file, FileSystem kind, const std::string& mount_point);
    ~MountedLoop();
    MountedLoop(const MountedLoop&) = delete;
    MountedLoop& operator=(const MountedLoop&) = delete;

   private:
    std::string mount_point_;
};

}  // namespace penstock::testing
