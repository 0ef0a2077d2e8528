// Replaces values of a model in a store, by the names of its parameters, tile by tile: weights that were loaded into a
// model in training, moments of another optimizer, buffers. The counterpart of read_out.h.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/weights/read_out.h"
#include "zero_infinity/weights/weight_source.h"

#include <cstddef>
#include <functional>
#include <span>

namespace penstock::zero {

// Which value of which parameters.
struct WriteIn {
    // weight and master are the same here: both become what the source gives, the weight rounded as the codec does.
    ParameterValue value = ParameterValue::weight;
    WantedParameters wanted;  // of those that have such a value
};

// Writes one tile from memory of its extent and returns when that is done. Throws as ReadTile.
using WriteTile = std::function<void(store::TileId tile, std::span<std::byte> memory)>;

struct WriteInDeps {
    const ModelLayout* layout = nullptr;  // the store has its objects
    ReadTile read;                        // the newest bytes, committed or not
    WriteTile write;
};

// What else the tiles hold stays, bit for bit under exact codecs; of a lossy one's tile it is decoded and encoded
// again. Commits nothing. The source is asked as when a store is filled. Takes memory as read_out(). REQUIRES: no
// moment is named that the format does not keep. Throws Error (storage), and what the source throws; some tiles are
// written then.
void write_in(const WriteInDeps& parts, const WriteIn& what, WeightSource& source);

}  // namespace penstock::zero
