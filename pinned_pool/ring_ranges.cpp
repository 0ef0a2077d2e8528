#include "pinned_pool/ring_ranges.h"

#include "aio/backend.h"
#include "aio/words/check.h"
#include "pinned_pool/region.h"

#include <algorithm>

namespace penstock::pool {

namespace {

// One range is left for a tail.
std::uint64_t range_bytes_for(std::uint64_t bytes) {
    std::uint64_t range_bytes = shortest_ring_range_bytes;
    while (range_bytes < aio::max_registered_bytes && bytes > range_bytes * (aio::max_registered - 1)) range_bytes *= 2;
    return range_bytes;
}

}  // namespace

std::vector<ArenaRange> ring_ranges(std::uint64_t arena_bytes, std::uint64_t mapped_bytes) {
    PENSTOCK_CHECK(arena_bytes <= mapped_bytes, "an arena of {} bytes in {}", arena_bytes, mapped_bytes);
    const std::uint64_t huge_bytes = std::min(arena_bytes, mapped_bytes / huge_page_bytes * huge_page_bytes);
    const std::uint64_t range_bytes = range_bytes_for(huge_bytes);
    std::vector<ArenaRange> ranges;
    for (std::uint64_t begin = 0; begin < arena_bytes && ranges.size() < aio::max_registered;) {
        const std::uint64_t end = begin < huge_bytes ? huge_bytes : arena_bytes;
        ranges.push_back({.offset_bytes = begin, .bytes = std::min(range_bytes, end - begin)});
        begin += ranges.back().bytes;
    }
    return ranges;
}

}  // namespace penstock::pool
