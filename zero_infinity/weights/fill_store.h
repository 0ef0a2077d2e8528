// Writes a model's first weights into a new store, tile by tile, or to where memory alone is to have them.
#pragma once

#include "swap/store/tensor_store.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstddef>
#include <functional>

namespace penstock::zero {

struct FillDeps {
    aio::Io* io = nullptr;
    store::TensorStore* store = nullptr;
    const ModelLayout* layout = nullptr;  // the store has its objects
};

// Writes every tile of every unit: masters from the source, moments as the optimizers of the pieces begin, padding
// zero. Commits nothing. Takes memory for some tiles, in fp32 and encoded (64 MiB, or two tiles), beside what the
// source takes: while tiles are written the next ones are made. REQUIRES: called on the thread that owns the Io. Throws
// Error (storage), and what source and progress throw.
void fill_store(const FillDeps& parts, WeightSource& source, const store::WorkProgress& progress);

// The same into memory that is zero and stays: `place` says where a tile of the layout lies, with room for its extent.
// `threads` encode, while the source waits.
using TilePlace = std::function<std::byte*(store::TileId tile)>;
void fill_memory(const ModelLayout& layout, const TilePlace& place, WeightSource& source, unsigned threads,
                 const store::WorkProgress& progress);

}  // namespace penstock::zero
