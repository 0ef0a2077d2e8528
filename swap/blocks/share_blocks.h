// A new snapshot takes the blocks of its origin's newest generation in the place of a copy.
#pragma once

#include "swap/blocks/block_clone.h"
#include "swap/blocks/shared_slots.h"
#include "swap/directory/store_files.h"
#include "swap/format/layout.h"
#include "swap/format/manifest.h"

#include <span>
#include <vector>

namespace penstock::store {

// What a store has on its first device, and where.
struct BlockOwner {
    const Layout& layout;
    const StoreFiles& files;
};

// What makes the written `tiles` of the one layout those of the other, a kept store's: neighbours in one run.
std::vector<BlockRun> block_runs(const Layout& from, std::span<const TileRecord> tiles, const Layout& to);

// Whether it is worth trying: one device on both sides, the same one, and the same extents.
bool may_share_blocks(const BlockOwner& from, const BlockOwner& to);

// Gives `to` the blocks of `tiles`, a generation of `from` that is durable; room for the writes of `from` that are to
// come is set aside in `slots`, its own. False: the file system cannot. Throws Error, also when that room is missing
// (does_not_fit). Where nothing is shared `to` has no data. REQUIRES: may_share_blocks().
bool share_blocks(const BlockOwner& from, std::span<const TileRecord> tiles, SharedSlots& slots, const BlockOwner& to);

}  // namespace penstock::store
