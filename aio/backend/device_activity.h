// Whether a block device is at work.
#pragma once

#include <cstdint>
#include <optional>

namespace penstock::aio {

// What the kernel has counted of the sectors that the device (as File::device()) has written, since it came up;
// /sys/dev/block/MAJOR:MINOR/stat, field 7 of the kernel's Documentation/block/stat.rst. Nothing where it counts none:
// file systems over a network, in memory, or on devices of their own (btrfs, overlay).
std::optional<std::uint64_t> sectors_written(std::uint64_t device) noexcept;

}  // namespace penstock::aio
