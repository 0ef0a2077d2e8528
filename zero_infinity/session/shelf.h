// What a client lays aside in one half of a step and takes again in the other: units' inputs, between forward and
// backward. It lies in memory of the pool, under a budget of its own; what finds no room there goes to NVMe and comes
// back (order/shelf_order.h says what and when).
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/spill/spill.h"
#include "zero_infinity/order/shelf_order.h"
#include "zero_infinity/order/spare_nodes.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// The way to NVMe and back: the driver's spills, or what a test puts in their place. As Driver's calls.
class ShelfMover {
   public:
    virtual store::SpillBlock allocate(std::uint64_t bytes) = 0;
    virtual void out(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) = 0;
    virtual void in(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) = 0;
    virtual void wait(store::SpillBlock block) = 0;
    virtual bool failed() const = 0;  // for good

   protected:
    ~ShelfMover() = default;
};

struct ShelfFigures {
    std::uint64_t items = 0;
    std::uint64_t bytes = 0;       // laid aside, wherever it lies
    std::uint64_t away_bytes = 0;  // that went to NVMe
};

// One thread. What it is given outlives it. Allocates while it meets new turns, and nothing in later steps of the same
// sizes. Throws Error: does_not_fit (memory for one thing and those that are in use: nothing has changed), storage and,
// of a full disk, does_not_fit, after which only destruction follows.
class Shelf final : private ShelfHands {
   public:
    struct Place {
        std::uint64_t turn = 0;   // in which it is taken: 0 first; one thing each
        std::uint32_t unit = 0;   // whose, for the trace
        std::uint64_t bytes = 0;  // above 0
    };

    // `use` of the pool has `setting`'s bytes, all of them the shelf's.
    Shelf(pool::PinnedPool& pool, pool::UseId use, ShelfMover& mover, std::string setting);
    ~Shelf();
    Shelf(const Shelf&) = delete;
    Shelf& operator=(const Shelf&) = delete;

    // Memory of so many bytes, at a granule; filled before the next call.
    std::span<std::byte> lay(const Place& place);
    // Its memory, with what was laid there; blocks until it is. Good until drop(). What is taken next comes meanwhile.
    std::span<std::byte> take(std::uint64_t turn);
    void put_back(std::uint64_t turn) { order_.put_back(turn); }     // which was taken: it is laid aside as before
    void drop(std::uint64_t turn);                                   // its place on NVMe is the next one's of that size
    bool has(std::uint64_t turn) const { return order_.has(turn); }  // something is laid aside for it
    void clear();                                                    // drops all; where a step ends early
    const ShelfFigures& figures() const noexcept { return figures_; }  // since the last clear()
    bool failed() const { return mover_.failed(); }                    // only destruction follows

   private:
    struct Held {
        std::uint32_t unit = 0;
        std::uint64_t bytes = 0;
        pool::Lease memory;  // none: it is away
        std::optional<store::SpillBlock> block;
    };
    using Helds = std::map<std::uint64_t, Held>;  // by turn

    bool find_room(std::uint64_t turn, std::uint64_t bytes) override;
    void give_room(std::uint64_t turn) override;
    void send(std::uint64_t turn) override;
    void fetch(std::uint64_t turn) override;
    void wait(std::uint64_t turn) override;
    [[noreturn]] void fail(std::uint64_t bytes) const;

    // Constant after construction.
    pool::PinnedPool& pool_;
    const pool::UseId use_;
    ShelfMover& mover_;
    const std::string setting_;

    // What is laid aside, and where it lies.
    Helds held_;
    ShelfOrder order_;
    ShelfFigures figures_;

    // Kept for what comes, so that a step like the one before allocates nothing.
    SpareNodes<Helds> spare_;                                          // of what was dropped
    std::map<std::uint64_t, std::vector<store::SpillBlock>> vacated_;  // by bytes
};

}  // namespace penstock::zero
