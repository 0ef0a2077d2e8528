// A client of a store whose contents are a function of (seed, object, tile, generation), so that every byte of every
// generation can be told from outside.
#pragma once

#include "swap/store/tensor_store.h"
#include "tests/aio/fakes/scratch.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace penstock::testing {

struct TestTile final : store::TileOperation {
    int finished = 0;
    void tile_done() noexcept override { ++finished; }
};

struct TestCommit final : store::CommitOperation {
    int finished = 0;
    void committed() noexcept override { ++finished; }
};

// Run to their end, one after the other; what went wrong, or nothing.
std::optional<store::StoreError> read_tile(aio::Io& io, store::TensorStore& store, store::TileId tile,
                                           std::span<std::byte> memory);
std::optional<store::StoreError> write_tile(aio::Io& io, store::TensorStore& store, store::TileId tile,
                                            std::span<std::byte> memory);
std::optional<store::StoreError> commit(aio::Io& io, store::TensorStore& store, const store::ClientState& client);

// What the store noted, without what it says of a file system that refuses O_DIRECT: that is not the test's doing.
std::vector<std::string> notes_of(const store::TensorStore& store);

// What an opening of a store is refused with, which is an Error of storage; "opened" when it is not refused. Another
// Error is thrown on.
std::string storage_refusal(const std::function<void()>& open);

// Bit rot: one bit of the file's byte at that offset is turned over.
void flip_bit(const std::string& path, std::uint64_t offset_bytes, unsigned bit = 0);

class Exercise {
   public:
    explicit Exercise(std::uint64_t seed) : seed_(seed) {}

    static std::vector<store::ObjectSpec> objects();

    // Writes what generation `g` changes, all at once, and commits it. Returns the first error.
    std::optional<store::StoreError> advance(aio::Io& io, store::TensorStore& store, std::uint64_t generation) const;
    std::optional<store::StoreError> write(aio::Io& io, store::TensorStore& store, std::uint64_t generation) const;

    // Compares every byte with what generation `g` must hold. Empty, or the first difference.
    std::string difference(aio::Io& io, store::TensorStore& store, std::uint64_t generation) const;

    void fill(std::span<std::byte> memory, store::TileId tile, std::uint64_t generation) const;

   private:
    bool changes(store::TileId tile, std::uint64_t generation) const;
    std::uint64_t last_change(store::TileId tile, std::uint64_t generation) const;

    std::uint64_t seed_;
};

}  // namespace penstock::testing
