// Which tiles a pin still holds, where their bytes are, and the writes that wait for them.
#pragma once

#include "swap/format/layout.h"
#include "swap/format/manifest.h"
#include "swap/store/tensor_store.h"

#include <cstdint>
#include <vector>

namespace penstock::store {

class PinnedTiles {
   public:
    PinnedTiles(GenerationPin& pin, std::vector<TileRecord> records);
    ~PinnedTiles();
    PinnedTiles(const PinnedTiles&) = delete;
    PinnedTiles& operator=(const PinnedTiles&) = delete;

    const TileRecord& record(std::uint32_t index) const { return records_[index]; }
    bool holds(std::uint32_t index) const { return held_[index]; }
    bool holds(std::uint32_t index, std::uint32_t slot) const { return held_[index] && records_[index].slot == slot; }

    void reserve_wait() { waiting_.reserve(waiting_.size() + 1); }
    // The write is started by whoever releases the tile. Tells the pin. REQUIRES: reserve_wait() was called.
    void wait(TileOperation& write) noexcept;
    // The write that waited for the tile, or null.
    TileOperation* release(std::uint32_t index, TileId tile) noexcept;
    // Releases all tiles. One of the writes that waited, until there is none: null.
    TileOperation* release_any() noexcept;

   private:
    GenerationPin& pin_;
    std::vector<TileRecord> records_;
    std::vector<bool> held_;
    std::vector<TileOperation*> waiting_;  // few: of those that are in flight
};

}  // namespace penstock::store
