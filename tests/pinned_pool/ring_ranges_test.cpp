#include "pinned_pool/ring_ranges.h"

#include "aio/backend.h"
#include "pinned_pool/region.h"

#include <gtest/gtest.h>

namespace penstock::pool {
namespace {

constexpr std::uint64_t kib = 1024;
constexpr std::uint64_t mib = 1024 * kib;
constexpr std::uint64_t gib = 1024 * mib;

std::uint64_t covered(const std::vector<ArenaRange>& ranges) {
    std::uint64_t end = 0;
    for (const ArenaRange& range : ranges) {
        EXPECT_EQ(range.offset_bytes, end);
        EXPECT_GT(range.bytes, 0U);
        EXPECT_LE(range.bytes, aio::max_registered_bytes);
        end += range.bytes;
    }
    EXPECT_LE(ranges.size(), aio::max_registered);
    return end;
}

TEST(RingRanges, AreShortAndTouch) {
    EXPECT_EQ(ring_ranges(0, 0), std::vector<ArenaRange>{});
    EXPECT_EQ(ring_ranges(4 * kib, 2 * mib), (std::vector<ArenaRange>{{0, 4 * kib}}));
    EXPECT_EQ(ring_ranges(64 * mib, 64 * mib), (std::vector<ArenaRange>{{0, 64 * mib}}));
    EXPECT_EQ(ring_ranges(130 * mib + 4 * kib, 132 * mib),
              (std::vector<ArenaRange>{{0, 64 * mib}, {64 * mib, 64 * mib}, {128 * mib, 2 * mib + 4 * kib}}));
}

// Small pages behind the last whole huge page of the mapping.
TEST(RingRanges, LeaveTheTailInSmallPagesToARangeOfItsOwn) {
    EXPECT_EQ(ring_ranges(4 * mib + 8 * kib, 4 * mib + 8 * kib),
              (std::vector<ArenaRange>{{0, 4 * mib}, {4 * mib, 8 * kib}}));
    EXPECT_EQ(ring_ranges(66 * mib - 4 * kib, 66 * mib - 4 * kib),
              (std::vector<ArenaRange>{{0, 64 * mib}, {64 * mib, 2 * mib - 4 * kib}}));
    EXPECT_EQ(ring_ranges(12 * kib, 12 * kib), (std::vector<ArenaRange>{{0, 12 * kib}}));
    // The mapping has a tail that the arena does not reach.
    EXPECT_EQ(ring_ranges(3 * mib, 4 * mib + 4 * kib), (std::vector<ArenaRange>{{0, 3 * mib}}));
}

TEST(RingRanges, GetLongerRatherThanTooMany) {
    struct Case {
        std::uint64_t arena_bytes;
        std::size_t count;
        std::uint64_t range_bytes;
    };
    for (const Case& each :
         {Case{1023 * 64 * mib, 1023, 64 * mib}, Case{1023 * 64 * mib + 2 * mib, 512, 128 * mib},
          Case{1023 * 64 * mib + 4 * kib, 1024, 64 * mib},  // one for a tail
          Case{200 * gib, 800, 256 * mib}, Case{1023 * gib, 1023, gib}, Case{1024 * gib, 1024, gib}}) {
        const std::vector<ArenaRange> ranges = ring_ranges(each.arena_bytes, each.arena_bytes);
        EXPECT_EQ(ranges.size(), each.count) << each.arena_bytes;
        EXPECT_EQ(ranges.front().bytes, each.range_bytes) << each.arena_bytes;
        EXPECT_EQ(covered(ranges), each.arena_bytes);
    }
}

TEST(RingRanges, LeaveOutWhatIsBeyondTheMostThatARingTakes) {
    for (const std::uint64_t more : {4 * kib, 2 * mib, gib, 5000 * gib}) {
        const std::vector<ArenaRange> ranges = ring_ranges(1024 * gib + more, 1024 * gib + more);
        EXPECT_EQ(ranges.size(), aio::max_registered);
        EXPECT_EQ(covered(ranges), 1024 * gib);
    }
}

}  // namespace
}  // namespace penstock::pool
