#include "swap/blocks/share_blocks.h"

#include "aio/words/size_limit.h"

namespace penstock::store {

std::vector<BlockRun> block_runs(const Layout& from, std::span<const TileRecord> tiles, const Layout& to) {
    std::vector<BlockRun> runs;
    for (std::uint32_t index = 0; index < tiles.size(); ++index) {
        if (!tiles[index].written) continue;
        const TileId tile = from.tile(index);
        const Extent source = from.extent(tile, tiles[index].slot);
        const Extent target = to.extent(tile, 0);
        if (!runs.empty() && runs.back().from_offset_bytes + runs.back().bytes == source.offset_bytes &&
            runs.back().to_offset_bytes + runs.back().bytes == target.offset_bytes) {
            runs.back().bytes += source.bytes;
        } else {
            runs.push_back({.from_offset_bytes = source.offset_bytes,
                            .to_offset_bytes = target.offset_bytes,
                            .bytes = source.bytes});
        }
    }
    return runs;
}

bool may_share_blocks(const BlockOwner& from, const BlockOwner& to) {
    return from.layout.device_count() == 1 && to.layout.device_count() == 1 &&
           from.layout.granule_bytes() == to.layout.granule_bytes() &&
           from.files.data[0].device() == to.files.data[0].device() &&
           SharedSlots::file_bytes(from.layout, from.layout.device_bytes(0)) <= aio::longest_file_bytes();
}

bool share_blocks(const BlockOwner& from, std::span<const TileRecord> tiles, SharedSlots& slots, const BlockOwner& to) {
    const std::vector<BlockRun> runs = block_runs(from.layout, tiles, to.layout);
    const aio::File& source = from.files.data[0];
    const aio::File& target = to.files.data[0];
    // Whether it can be done is seen of one granule: where it cannot, no room is asked for.
    if (!runs.empty()) {
        BlockRun first = runs.front();
        first.bytes = from.layout.granule_bytes();
        if (clone_blocks(source, target, {&first, 1}) == Cloned::refused) return false;
        to.files.set_data_length(0);
    }
    take_blocks_exactly(source, from.layout.granule_bytes());
    slots.add(tiles);
    const auto undo = [&] {
        to.files.set_data_length(0);
        slots.take_back();
    };
    try {
        if (clone_blocks(source, target, runs) == Cloned::refused) {
            undo();
            return false;
        }
        to.files.set_data_length(to.layout.device_bytes(0));
    } catch (...) {
        undo();
        throw;
    }
    return true;
}

}  // namespace penstock::store
