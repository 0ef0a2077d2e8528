#include "swap/blocks/block_clone.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "aio/words/size_limit.h"

#include <fmt/format.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace penstock::store {
namespace {

// Of a file system that cannot, of two file systems, of files that must not.
constexpr std::array cannot_clone = {EOPNOTSUPP, EXDEV, EINVAL, ENOTTY, ENOSYS, EPERM, ETXTBSY};

template <typename Argument>
int ioctl_errno(const aio::File& file, unsigned long request, Argument& argument) noexcept {
    for (;;) {
        if (::ioctl(file.fd(), request, &argument) == 0) return 0;
        if (errno != EINTR) return errno;
    }
}

}  // namespace

Cloned clone_blocks(const aio::File& from, const aio::File& to, std::span<const BlockRun> runs) {
    const aio::NoSizeSignal quiet;
    for (const BlockRun& run : runs) {
        file_clone_range range{.src_fd = from.fd(),
                               .src_offset = run.from_offset_bytes,
                               .src_length = run.bytes,
                               .dest_offset = run.to_offset_bytes};
        const int error = ioctl_errno(to, FICLONERANGE, range);
        if (error == 0) continue;
        if (std::find(cannot_clone.begin(), cannot_clone.end(), error) != cannot_clone.end()) return Cloned::refused;
        const bool full = error == ENOSPC || error == EDQUOT;
        throw Error(full ? ExitCode::does_not_fit : ExitCode::storage,
                    fmt::format("{} cannot share blocks of {}: {}; {}.", to.path(), from.path(), aio::errno_text(error),
                                full ? "free some space" : "check the device (dmesg)"));
    }
    return Cloned::all;
}

void take_blocks_exactly(const aio::File& file, std::uint64_t granule_bytes) noexcept {
    fsxattr attributes{};
    if (ioctl_errno(file, FS_IOC_FSGETXATTR, attributes) != 0) return;
    attributes.fsx_xflags |= FS_XFLAG_COWEXTSIZE;
    attributes.fsx_cowextsize = static_cast<std::uint32_t>(granule_bytes);
    static_cast<void>(ioctl_errno(file, FS_IOC_FSSETXATTR, attributes));
}

bool for_shared_ranges(const aio::File& file, std::uint64_t bytes,
                       const std::function<void(std::uint64_t begin_bytes, std::uint64_t end_bytes)>& call) {
    constexpr std::uint32_t at_once = 512;
    std::vector<std::byte> memory(sizeof(fiemap) + at_once * sizeof(fiemap_extent));
    auto& map = *reinterpret_cast<fiemap*>(memory.data());
    for (std::uint64_t begin = 0; begin < bytes;) {
        std::memset(memory.data(), 0, memory.size());
        map.fm_start = begin;
        map.fm_length = bytes - begin;
        map.fm_extent_count = at_once;
        if (ioctl_errno(file, FS_IOC_FIEMAP, map) != 0) return false;
        for (std::uint32_t i = 0; i < map.fm_mapped_extents; ++i) {
            const fiemap_extent& extent = map.fm_extents[i];
            const std::uint64_t end = extent.fe_logical + extent.fe_length;
            if (end <= begin) return false;  // a file system that goes back would be asked for ever
            if ((extent.fe_flags & FIEMAP_EXTENT_SHARED) != 0) call(extent.fe_logical, end);
            begin = end;
        }
        if (map.fm_mapped_extents < at_once) return true;
    }
    return true;
}

}  // namespace penstock::store
