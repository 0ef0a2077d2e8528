#include "swap/blocks/share_blocks.h"

#include <gtest/gtest.h>

namespace penstock::testing {
namespace {

TEST(ShareBlocks, NeighboursInOneSlotAreOneRunAndWhatWasNeverWrittenIsNone) {
    const std::vector<store::ObjectSpec> objects = {{"a", 40'000, 8192}, {"b", 5000, 8192}};  // five tiles and one
    const store::Layout from(objects, {.slots = 2});
    const store::Layout to(objects, {.slots = 1});
    const auto in = [](std::uint32_t slot) { return store::TileRecord{.slot = slot, .written = true}; };
    const std::vector<store::TileRecord> tiles = {in(0), in(0), in(1), {}, in(0), in(1)};
    std::vector<std::vector<std::uint64_t>> found;
    for (const store::BlockRun& run : block_runs(from, tiles, to))
        found.push_back({run.from_offset_bytes, run.to_offset_bytes, run.bytes});
    const std::vector<std::vector<std::uint64_t>> expected = {
        {0, 0, 16'384}, {40'960 + 16'384, 16'384, 8192}, {32'768, 32'768, 8192}, {90'112, 40'960, 8192}};
    EXPECT_EQ(found, expected);
}

}  // namespace
}  // namespace penstock::testing
