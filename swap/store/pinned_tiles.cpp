#include "swap/store/pinned_tiles.h"

#include "aio/words/check.h"

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

void PinnedTiles::wait(std::uint32_t index, TileOperation& write) {
    waiting_.emplace(index, &write);
    write.stage_ = TileOperation::Stage::waiting;
    pin_.wanted(write.tile());
}

TileOperation* PinnedTiles::release(std::uint32_t index) {
    PENSTOCK_CHECK(held_[index], "tile number {} is not pinned", index);
    held_[index] = false;
    const auto found = waiting_.find(index);
    if (found == waiting_.end()) return nullptr;
    TileOperation* const write = found->second;
    waiting_.erase(found);
    write->stage_ = TileOperation::Stage::writing;
    return write;
}

std::vector<TileOperation*> PinnedTiles::release_all() {
    std::vector<TileOperation*> writes;
    for (const auto& [index, write] : waiting_) {
        write->stage_ = TileOperation::Stage::writing;
        writes.push_back(write);
    }
    waiting_.clear();
    held_.assign(held_.size(), false);
    return writes;
}

}  // namespace penstock::store
