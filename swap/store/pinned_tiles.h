// Which tiles a pin still holds, where their bytes are, and the writes that wait for them.
#pragma once

#include "swap/format/layout.h"
#include "swap/format/manifest.h"
#include "swap/store/tensor_store.h"

#include <cstdint>
#include <unordered_map>
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

    // The write is started by whoever releases the tile. Tells the pin.
    void wait(std::uint32_t index, TileOperation& write);
    // The write that waited for the tile, or null.
    TileOperation* release(std::uint32_t index);
    std::vector<TileOperation*> release_all();

   private:
    GenerationPin& pin_;
    std::vector<TileRecord> records_;
    std::vector<bool> held_;
    std::unordered_map<std::uint32_t, TileOperation*> waiting_;
};

}  // namespace penstock::store
