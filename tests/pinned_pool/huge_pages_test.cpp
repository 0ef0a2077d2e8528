#include "pinned_pool/huge_pages.h"
#include "pinned_pool/region.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <optional>

namespace penstock::pool {
namespace {

// Of both ways of asking, on regions whose last huge page is or is not whole.
TEST(HugePages, AreCountedAlikeByBothWays) {
    for (const HugePages wish : {HugePages::wanted, HugePages::avoided}) {
        for (const std::size_t bytes : {std::size_t{4096}, huge_page_bytes, 3 * huge_page_bytes + 8192}) {
            const Region region(bytes, 1, Registration::none, wish);
            const std::size_t listed = listed_huge_bytes(region.data());
            const std::optional<std::size_t> scanned = scanned_huge_bytes(region.data(), region.bytes());
            if (!scanned) GTEST_SKIP() << "this kernel tells of huge pages in /proc/self/smaps only";
            EXPECT_EQ(*scanned, listed) << bytes;
            EXPECT_EQ(huge_bytes_in(region.data(), region.bytes()), listed) << bytes;
            if (wish == HugePages::avoided) {
                EXPECT_EQ(*scanned, 0U);
            }
        }
    }
}

// More runs of huge pages than one question has room for.
TEST(HugePages, AreCountedInPiecesToo) {
    constexpr std::size_t pages = 150;
    const Region region(pages * huge_page_bytes, 1, Registration::none, HugePages::wanted);
    if (region.huge_bytes() < region.bytes()) GTEST_SKIP() << "the kernel gave no huge pages for all of it";
    // Every other one loses a page, and is split.
    for (std::size_t page = 0; page < pages; page += 2) {
        ASSERT_EQ(::madvise(region.data() + page * huge_page_bytes, 4096, MADV_DONTNEED), 0);
    }
    const std::optional<std::size_t> scanned = scanned_huge_bytes(region.data(), region.bytes());
    if (!scanned) GTEST_SKIP() << "this kernel tells of huge pages in /proc/self/smaps only";
    EXPECT_EQ(*scanned, pages / 2 * huge_page_bytes);
    EXPECT_EQ(*scanned, listed_huge_bytes(region.data()));
}

}  // namespace
}  // namespace penstock::pool
