// One operation at a time, waited for: for initialisation, tools and tests. The step loop keeps many in flight instead.
#pragma once

#include "aio/io.h"
#include "swap/store/tensor_store.h"

#include <cstddef>
#include <span>

namespace penstock::store {

// Each polls the Io until the operation has ended, which also delivers other operations of that Io; not from a
// completion. Contracts as in TensorStore; a pinned tile that a write waits for is released by what the Io delivers.
// Throws Error (storage) with the StoreError's message, or when the device is stuck (Io::advance): then the store is
// abandoned, and `memory` must stay allocated until the process has ended.
void read_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory);
void write_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory);
void commit_blocking(aio::Io& io, TensorStore& store, const ClientState& client);
void settle_blocking(aio::Io& io, TensorStore& store);  // TensorStore::settle(); throws when it was in vain

}  // namespace penstock::store
