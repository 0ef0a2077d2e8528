// Blocks of one file that become another one's, too, without a byte being moved: the file system's side of it
// (FICLONERANGE: XFS with reflink, btrfs).
#pragma once

#include "aio/file.h"

#include <cstdint>
#include <functional>
#include <span>

namespace penstock::store {

struct BlockRun {
    std::uint64_t from_offset_bytes = 0;
    std::uint64_t to_offset_bytes = 0;
    std::uint64_t bytes = 0;
};

enum class Cloned : std::uint8_t {
    all,
    refused,  // the file system cannot: `to` may have some of them
};

// Blocks while direct I/O of the files that is under way goes on. Whoever writes there afterwards takes new blocks.
// Throws Error: does_not_fit (no room for what the file system notes about them), storage.
Cloned clone_blocks(const aio::File& from, const aio::File& to, std::span<const BlockRun> runs);

// From now on a write to blocks of several files takes as many new ones as it has bytes, and not some dozens more
// around them (XFS: 128 KiB). Where the file system has no such setting nothing happens.
void take_blocks_exactly(const aio::File& file, std::uint64_t granule_bytes) noexcept;

// Calls with every range of the file whose blocks are another file's, too, in ascending order. False: nobody can tell.
bool for_shared_ranges(const aio::File& file, std::uint64_t bytes,
                       const std::function<void(std::uint64_t begin_bytes, std::uint64_t end_bytes)>& call);

}  // namespace penstock::store
