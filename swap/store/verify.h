// Reads tiles of a store and compares them with their hashes, at the device's speed.
#pragma once

#include "swap/store/tensor_store.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::store {

struct VerifyReport {
    std::uint64_t tiles = 0;  // read, damaged ones included
    std::uint64_t bytes = 0;
    std::uint64_t damaged_tiles = 0;   // wrong, or not readable
    std::uint64_t unread_tiles = 0;    // of these, those that the device gave an error for: they need not be wrong
    std::vector<TileId> damaged;       // all of them
    std::vector<std::string> damages;  // of the first hundred: object, tile, file, offset, what is wrong
};

struct VerifyOptions {
    VerifyScope scope = VerifyScope::all;
    aio::Urgency urgency = aio::Urgency::demand;  // scrub where others use the device
    WorkProgress progress = {};                   // as tiles are found right or not
};

// Of the newest bytes of all written tiles in the scope; what is not right is read a second time. Has 8 MiB of memory
// of its own while it runs, however long the tiles are, and 4 bytes per tile. Polls the Io; not from a completion.
// REQUIRES: no operation in flight on the store. Throws Error (storage) when the device is stuck: then the
// store is abandoned.
VerifyReport verify(aio::Io& io, TensorStore& store, const VerifyOptions& options);

}  // namespace penstock::store
