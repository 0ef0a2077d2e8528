// A programmable disk: a file whose every read, write and flush is answered by a process of this test, and logged.
// Under a loop device (loop_device.h) it is a disk like any other to the kernel, so that what a file system and the
// store do to a drive can be recorded, replayed in part, and answered with errors.
//
// The server is a process of its own: were it a thread of the test, a test that is killed while it waits for its own
// disk could never end. When the test dies, the server is killed with it (PR_SET_PDEATHSIG), the kernel ends the FUSE
// connection, and what still waits for the disk gets an error.
#pragma once

#include "swap/directory/descriptor.h"

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock::testing {

// How requests from now on are answered.
enum class DiskHealth : std::uint8_t {
    sound,
    flushes_fail,  // EIO; the writes before have landed
    writes_fail,   // EIO, and nothing lands
    all_fail,      // reads as well
};

// One write (`before` and `after`: the bytes that were there and those that came) or one flush (both empty). In the
// order in which the disk answered.
struct DiskEvent {
    std::uint64_t offset_bytes = 0;
    std::span<const std::byte> before;
    std::span<const std::byte> after;
    bool flush() const { return after.empty(); }
};

// Used from one process, a child of run_with_mounts() (tests/swap/directory/mounts.h). REQUIRES: root, /dev/fuse.
class FuseDisk {
   public:
    // `path`: a file to be made; the disk appears there. Throws std::runtime_error where this machine does not allow
    // it. Fork-safe only while the process has one thread: make disks before anything that starts threads.
    FuseDisk(const std::string& path, std::uint64_t bytes);
    ~FuseDisk();
    FuseDisk(const FuseDisk&) = delete;
    FuseDisk& operator=(const FuseDisk&) = delete;

    const std::string& path() const { return path_; }
    std::string image_path() const;  // of the same bytes as an ordinary file, for mkfs, past server and log

    void set_health(DiskHealth health);

    // Events so far. What was answered before this call is in it; REQUIRES of log(): nothing is under way.
    std::size_t event_count() const;
    std::vector<DiskEvent> log() const;
    void clear_log();  // REQUIRES: as log()

    std::span<std::byte> image() const;  // REQUIRES: nothing is under way

   private:
    struct Shared;
    class Server;
    std::string path_;
    store::Descriptor memory_;
    std::span<std::byte> image_;
    Shared* shared_ = nullptr;
    pid_t server_ = -1;
};

}  // namespace penstock::testing
