// How an arena is divided into the ranges that a ring registers. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::pool {

struct ArenaRange {
    std::uint64_t offset_bytes = 0;
    std::uint64_t bytes = 0;
    bool operator==(const ArenaRange&) const = default;
};

inline constexpr std::uint64_t shortest_ring_range_bytes = 64U << 20;

// The kernel keeps the huge pages of a range whole only when all of its pages are huge; else it works with 4 KiB pages
// for all of it, which is worse than no registration (512 MiB with one small page: twice the CPU time per byte, 10 %
// less to read). So the tail of an arena whose mapping ends within a huge page is a range by itself, and the others are
// short, because single huge pages may be missing: 64 MiB, doubled until there are not too many, and at most as long as
// a range may be. An attempt that crosses from one range into the next goes without, one of 64 with chunks of 1 MiB.
//
// The arena is what is used of `mapped_bytes`, from the begin, which lies on a huge page. Ranges touch, in order, at
// most max_registered of them (aio/backend.h): what is left of an arena above 1 TiB is not registered.
// REQUIRES: arena_bytes <= mapped_bytes.
std::vector<ArenaRange> ring_ranges(std::uint64_t arena_bytes, std::uint64_t mapped_bytes);

}  // namespace penstock::pool
