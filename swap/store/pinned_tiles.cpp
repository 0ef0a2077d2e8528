#include "swap/store/pinned_tiles.h"

#include "aio/words/check.h"

#include <algorithm>
#include <utility>

namespace penstock::store {

PinnedTiles::PinnedTiles(GenerationPin& pin, std::vector<TileRecord> records)
    : pin_(pin), records_(std::move(records)), held_(records_.size()) {
    for (std::size_t i = 0; i < records_.size(); ++i) held_[i] = records_[i].written;
    pin_.pinned_ = true;
}

PinnedTiles::~PinnedTiles() {
    PENSTOCK_CHECK(waiting_.empty(), "{} writes wait for pinned tiles", waiting_.size());
    pin_.pinned_ = false;
}

void PinnedTiles::wait(TileOperation& write) noexcept {
    waiting_.push_back(&write);
    write.stage_ = TileOperation::Stage::waiting;
    pin_.wanted(write.tile());
}

TileOperation* PinnedTiles::release(std::uint32_t index, TileId tile) noexcept {
    PENSTOCK_CHECK(held_[index], "tile number {} is not pinned", index);
    held_[index] = false;
    const auto waits = [tile](const TileOperation* write) { return write->tile() == tile; };
    const auto found = std::find_if(waiting_.begin(), waiting_.end(), waits);
    if (found == waiting_.end()) return nullptr;
    TileOperation* const write = *found;
    waiting_.erase(found);
    write->stage_ = TileOperation::Stage::writing;
    return write;
}

TileOperation* PinnedTiles::release_any() noexcept {
    held_.assign(held_.size(), false);
    if (waiting_.empty()) return nullptr;
    TileOperation* const write = waiting_.back();
    waiting_.pop_back();
    write->stage_ = TileOperation::Stage::writing;
    return write;
}

}  // namespace penstock::store
