// Copies tiles from one store to another through a few pieces of memory.
#pragma once

#include "swap/store/tensor_store.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace penstock::store {

class TileCopyListener {
   public:
    // All from within Io::poll() or wait(), or from start(), stop() and hurry().
    virtual void tile_read(TileId tile) noexcept = 0;  // or could not be read: its place in the source is not needed
    virtual void reading_ended() noexcept = 0;         // once: the source is not read any more
    virtual void copy_ended() noexcept = 0;            // once, after it: nothing is in flight

   protected:
    ~TileCopyListener() = default;
};

// All written (or pinned) tiles of `from`, once each, in their order on the devices. On the stores' thread. Stores,
// memory and listener outlive it. Not destroyed before copy_ended(), unless the stores were abandoned.
class TileCopy {
   public:
    enum class Source : std::uint8_t { newest, pinned };  // read() or read_pinned()
    enum class Pace : std::uint8_t { full, background };  // background: scrub urgency, but for what is hurried

    struct Options {
        Source source = Source::newest;
        Pace pace = Pace::full;
    };

    // `memory` of at least lane_bytes(), aligned to both granules. REQUIRES: both have the same objects.
    TileCopy(TensorStore& from, TensorStore& to, std::span<std::byte> memory, Options options,
             TileCopyListener& listener);

    // Memory for one tile on its way.
    static std::uint64_t lane_bytes(const TensorStore& from, const TensorStore& to);

    void start();
    // Begins nothing new; what is in flight comes back, soon.
    void stop() noexcept;
    // This tile next, and soon. Nothing happens when it was read already.
    void hurry(TileId tile) noexcept;

    const std::optional<StoreError>& error() const noexcept { return error_; }  // the first
    std::uint64_t copied_bytes() const noexcept { return copied_bytes_; }
    std::uint64_t total_bytes() const noexcept { return total_bytes_; }

   private:
    enum class State : std::uint8_t {
        fresh,    // nothing was begun
        reading,  // tiles are being read, or will be
        writing,  // the last ones are being written
        ended,    // nothing is in flight
    };
    enum class Step : std::uint8_t { idle, reading, writing };
    struct Lane final : TileOperation {
        TileCopy* owner = nullptr;
        std::span<std::byte> memory;
        Step step = Step::idle;
        void tile_done() noexcept override { owner->lane_done(*this); }
    };

    void begin_next(Lane& lane);
    std::optional<std::uint32_t> take_next() noexcept;
    void begin_write(Lane& lane);
    void lane_done(Lane& lane) noexcept;
    void promote(Lane& lane) noexcept;
    void advance() noexcept;

    TensorStore& from_;
    TensorStore& to_;
    Options options_;
    TileCopyListener& listener_;
    std::deque<Lane> lanes_;

    State state_ = State::fresh;
    std::vector<bool> due_;  // by tile: is still to be begun
    std::uint32_t due_count_ = 0;
    std::uint32_t next_ = 0;             // no tile before it is due, but for the hurried ones
    std::deque<std::uint32_t> hurried_;  // due, and before all others
    std::uint32_t reading_ = 0;          // lanes
    std::uint32_t writing_ = 0;
    bool stopped_ = false;
    std::optional<StoreError> error_;
    std::uint64_t copied_bytes_ = 0;
    std::uint64_t total_bytes_ = 0;
};

}  // namespace penstock::store
