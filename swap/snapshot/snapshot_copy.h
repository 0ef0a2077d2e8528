// Copies a generation of a store into a store of its own, complete and relocatable, while the first one goes on.
#pragma once

#include "swap/store/tensor_store.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace penstock::store {

// One copy under way. Tiles are read at scrub urgency, so it takes what others leave of the device; a tile that the
// store wants to overwrite is copied before all others and holds that write up for so long. All calls on the store's
// thread; the work is done from within Io::poll() and wait(). `from`, its Io, the directory of `to` and the memory
// outlive it, and `to` is its own; it is destroyed when it has finished, or after `from` was abandoned (checked).
class SnapshotCopy {
   public:
    // Pins the newest generation of `from` and begins. `to` is create_snapshot()'s, made for that generation. `memory`
    // holds copies under way: at least one longest extent, aligned to both granules; two or more make it overlap.
    // Where `to` shares the blocks of `from` nothing is copied nor pinned, and only the commit is left.
    // The copy is committed with the generation's client state, or with `client`: a scratch store has none.
    // REQUIRES: as TensorStore::pin(); `from` is not kept itself (copy_tiles() copies such a one).
    SnapshotCopy(TensorStore& from, std::unique_ptr<TensorStore> to, std::span<std::byte> memory,
                 const ClientState* client = nullptr);
    ~SnapshotCopy();
    SnapshotCopy(const SnapshotCopy&) = delete;
    SnapshotCopy& operator=(const SnapshotCopy&) = delete;

    // Ends it early: what is under way comes back, then it has finished with an error, and the copy stays uncommitted.
    void stop() noexcept;

    bool finished() const noexcept;  // committed, or failed: nothing is in flight, nothing is pinned
    std::uint64_t copied_bytes() const noexcept;
    std::uint64_t total_bytes() const noexcept;  // 0 where blocks are shared
    // Why there is no snapshot, valid when finished. The store itself is not harmed by it.
    const std::optional<StoreError>& error() const noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

enum class Blocks : std::uint8_t {
    own,     // the tiles are to be copied
    shared,  // with the origin, where the file system can (TensorStore::shares_blocks()); else as own
};

// A new kept store in `directory` for a copy of what `from` holds now, which is settled first. Polls the Io for some
// milliseconds. Throws Error as TensorStore::create() and settle_blocking(). REQUIRES of shared blocks: no commit of
// `from` is under way.
std::unique_ptr<TensorStore> create_snapshot(aio::Io& io, TensorStore& from, StoreDirectory& directory,
                                             aio::Caching caching, Blocks blocks = Blocks::own);

// Throws Error (does_not_fit) where the machine has less memory left than `bytes`, which tiles of up to `tile_bytes`
// take on their way: a tile is moved as a whole, and a manifest may say any length of it.
void check_memory_for_tiles(std::uint64_t tile_bytes, std::uint64_t bytes);

// Copies the newest bytes of all written tiles of `from` into `to`, which has the same objects; the caller commits.
// With a kept store as `from` this is how a run goes back to a snapshot: what `to` had committed stays whole until
// that commit. Polls the Io; has 32 MiB of memory of its own, or two tiles where these are longer. Throws Error: usage
// (the objects differ; the first difference is named), does_not_fit (two tiles), storage (what could not be read or
// written, or a stuck device: then both are abandoned), and what `progress` throws.
void copy_tiles(aio::Io& io, TensorStore& from, TensorStore& to, const WorkProgress& progress);

}  // namespace penstock::store
