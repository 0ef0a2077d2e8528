// An open file with what direct I/O needs to know about it.
#pragma once

#include "aio/words/shared_text.h"

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::aio {

// What a file asks of an address and of an offset or length, in bytes; both are powers of two, and 1 when it is read
// and written through the page cache.
struct Alignment {
    std::uint32_t memory_bytes = 4096;
    std::uint32_t offset_bytes = 4096;
};

enum class FileMode : std::uint8_t { read_only, read_write, create };  // create: must not exist yet, mode 0600
enum class Caching : std::uint8_t { direct, buffered };
enum class Sync : std::uint8_t { on_flush, each_write };  // each_write: O_DSYNC

struct FileOptions {
    FileMode mode = FileMode::read_write;
    Caching caching = Caching::direct;  // a wish: see File::direct()
    Sync sync = Sync::on_flush;
};

// A move-only owner of a file descriptor. Opening never follows a symbolic link in the last component and throws Error
// (storage) with path and cause; so does anything but a regular file or a block device. Any thread may call the const
// members; a File must outlive the transfers that use it, and stay where it is: not moved, assigned or closed
// meanwhile.
//
// Alignment is asked from the kernel (statx, STATX_DIOALIGN). Where it does not tell, a read is tried at 512 and at
// 4096 bytes. Where the file system refuses O_DIRECT, the file is opened through the page cache, direct() is false and
// fallback() says why in one line, for the composition root to log.
class File {
   public:
    File() noexcept = default;
    // `path` is relative to the directory `directory_fd` (AT_FDCWD for none); `shown_path` is what errors print.
    File(int directory_fd, const std::string& path, const std::string& shown_path, FileOptions options);
    // A new one in that directory that never has a name, mode 0600: nobody else opens it, and its room is free again
    // once it is closed, however the process ends. Nothing where the file system has no such files. Throws as the
    // above.
    static std::optional<File> nameless(int directory_fd, const std::string& shown_path, Caching caching);
    ~File();
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;

    int fd() const noexcept { return fd_; }
    const std::string& path() const noexcept { return path_; }
    const SharedText& shared_path() const noexcept { return path_; }
    bool direct() const noexcept { return direct_; }
    Sync sync() const noexcept { return sync_; }
    const std::string& fallback() const noexcept { return fallback_; }
    Alignment alignment() const noexcept { return alignment_; }
    // st_rdev of a block device, else st_dev. Two partitions or subvolumes of one drive count as two devices.
    std::uint64_t device() const noexcept { return device_; }
    // Unique in the process and never used again, unlike the descriptor's number; moves with the File; 0 when not open.
    std::uint64_t id() const noexcept { return id_; }
    std::uint64_t bytes() const;

    // Reserves the range [0, bytes) on disk; the file is at least that long afterwards. Throws Error (does_not_fit)
    // naming needed and free bytes, or the quota. Where the file system cannot reserve (EOPNOTSUPP), free space is
    // checked and the length set.
    void reserve(std::uint64_t bytes);
    // The same of what lies past the file's end alone, up to `bytes`: XFS wants as much room free as the range is long,
    // however much of it is reserved already, and walks all its extents. REQUIRES: bytes > bytes().
    void reserve_past_end(std::uint64_t bytes);

   private:
    void prepare(const std::string& shown_path, const FileOptions& options);
    void reserve_range(std::uint64_t begin, std::uint64_t bytes);

    int fd_ = -1;
    SharedText path_;
    bool direct_ = false;
    Sync sync_ = Sync::on_flush;
    std::string fallback_;
    Alignment alignment_;
    std::uint64_t device_ = 0;
    std::uint64_t id_ = 0;
};

}  // namespace penstock::aio
