// Tiles in their order, compared with their hashes part by part as they come from the devices.
#pragma once

#include "aio/words/io_error.h"
#include "pinned_pool/region.h"
#include "swap/format/hash.h"
#include "swap/store/long_work.h"
#include "swap/store/tensor_store.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace penstock::store {

class TileStreamListener {
   public:
    // `right`: it is what was written. `error`: of the first part that could not be read, if any; no more of it was.
    virtual void tile_checked(std::uint32_t tile, bool right, const std::optional<aio::IoError>& error) noexcept = 0;

   protected:
    ~TileStreamListener() = default;
};

// A ring of parts: the oldest is hashed while the others are with the devices, and takes the next piece of the stream.
// All of it stays in the processor's cache, however long the tiles are: sweeping 32 MiB instead costs a third of the
// bandwidth where data come by a copy (bench/results/2026-11-21-another-machine.md). On the store's thread.
class TileStream final : public LongWork {
   public:
    // `tiles` by index, all written. REQUIRES: nothing writes to the store before it has finished.
    TileStream(aio::Io& io, TensorStore& store, std::vector<std::uint32_t> tiles, aio::Urgency urgency,
               TileStreamListener& listener);
    void start();

    std::size_t tile_count() const noexcept { return tiles_.size(); }

    bool finished() const noexcept override { return in_flight_ == 0; }
    void stop() noexcept override { next_ = tiles_.size(); }
    void abandon() noexcept override;
    std::uint64_t done_bytes() const noexcept override { return right_bytes_; }  // of tiles that are right
    std::uint64_t total_bytes() const noexcept override { return total_bytes_; }

   private:
    struct Part final : aio::Transfer {
        TileStream* owner = nullptr;
        std::byte* memory = nullptr;
        std::uint32_t tile = 0;          // by index
        std::uint64_t offset_bytes = 0;  // in the extent
        bool back = false;
        void done() noexcept override { owner->part_done(*this); }
    };

    StoredTile stored(std::uint32_t tile) const { return store_.stored(store_.layout().tile(tile)); }
    void start_next(Part& part);
    void part_done(Part& part) noexcept;
    void take(const Part& part) noexcept;
    void give_up(const Part& part) noexcept;

    aio::Io& io_;
    TensorStore& store_;
    std::vector<std::uint32_t> tiles_;
    aio::Urgency urgency_;
    TileStreamListener& listener_;
    std::uint64_t total_bytes_ = 0;
    std::uint64_t part_bytes_ = 0;
    pool::Region memory_;
    std::deque<Part> ring_;

    // Where the stream is read next.
    std::size_t next_ = 0;  // of tiles_
    std::uint64_t next_offset_bytes_ = 0;
    // Where it is hashed next.
    std::size_t oldest_ = 0;  // of ring_
    TileHasher hasher_;
    std::optional<std::uint32_t> given_up_;  // the tile that a part of was not to be read: the rest is not read

    std::size_t in_flight_ = 0;
    bool abandoned_ = false;
    std::uint64_t right_bytes_ = 0;
};

}  // namespace penstock::store
