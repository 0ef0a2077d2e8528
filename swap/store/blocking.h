// One operation at a time, waited for: for initialisation, tools and tests. The step loop keeps many in flight instead.
#pragma once

#include "aio/io.h"
#include "swap/store/tensor_store.h"

#include <chrono>
#include <cstddef>
#include <span>

namespace penstock::store {

inline constexpr std::chrono::nanoseconds default_deadline = std::chrono::seconds(120);

// Each polls the Io until the operation has ended, which also delivers other operations of that Io; not from a
// completion. Contracts as in TensorStore. Throws Error (storage) with the StoreError's message, or when the device has
// not answered by the deadline: then the store is abandoned, and `memory` must stay allocated until the process has
// ended.
void read_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory,
                   std::chrono::nanoseconds deadline = default_deadline);
void write_blocking(aio::Io& io, TensorStore& store, TileId tile, std::span<std::byte> memory,
                    std::chrono::nanoseconds deadline = default_deadline);
void commit_blocking(aio::Io& io, TensorStore& store, const ClientState& client,
                     std::chrono::nanoseconds deadline = default_deadline);

}  // namespace penstock::store
