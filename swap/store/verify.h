// Reads tiles of a store and compares them with their hashes, at the device's speed.
#pragma once

#include "swap/store/tensor_store.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::store {

struct VerifyReport {
    std::uint64_t tiles = 0;  // read, damaged ones included
    std::uint64_t bytes = 0;
    std::uint64_t damaged_tiles = 0;   // wrong, or not readable
    std::vector<TileId> damaged;       // all of them
    std::vector<std::string> damages;  // of the first hundred: object, tile, file, offset, what is wrong
};

struct VerifyOptions {
    VerifyScope scope = VerifyScope::all;
    aio::Urgency urgency = aio::Urgency::demand;  // scrub where others use the device
    // Called on the caller's thread as tiles are found right or not; what it throws ends the work and reaches the
    // caller.
    std::function<void(std::uint64_t verified_bytes, std::uint64_t total_bytes)> progress = {};
    std::chrono::nanoseconds deadline = std::chrono::seconds(120);  // without any tile coming back
};

// Of the newest bytes of all written tiles in the scope; what is not right is read a second time. Has 8 MiB of memory
// of its own while it runs, and the longest extent when something is read again. Polls the Io; not from a completion.
// REQUIRES: no operation in flight on the store. Throws Error (storage) when the device does not answer by the
// deadline: then the store is abandoned.
VerifyReport verify(aio::Io& io, TensorStore& store, const VerifyOptions& options);

}  // namespace penstock::store
