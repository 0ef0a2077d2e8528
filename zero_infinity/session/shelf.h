// What a client lays aside in one half of a step and takes again in the other: units' inputs, between forward and
// backward. It lies in memory of the pool, under a budget of its own; what finds no room there goes to NVMe, what is
// taken last first, and comes back before it is taken. For an order that is known this is the least that can be moved
// (L. A. Belady, A study of replacement algorithms for a virtual-storage computer, IBM Systems Journal 5(2), 1966).
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "swap/spill/spill.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

namespace penstock::zero {

// The way to NVMe and back: the driver's spills, or what a test puts in their place. As Driver's calls.
class ShelfMover {
   public:
    virtual store::SpillBlock allocate(std::uint64_t bytes) = 0;
    virtual void out(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) = 0;
    virtual void in(store::SpillBlock block, std::span<std::byte> memory, std::uint32_t unit) = 0;
    virtual void wait(store::SpillBlock block) = 0;

   protected:
    ~ShelfMover() = default;
};

struct ShelfFigures {
    std::uint64_t items = 0;
    std::uint64_t bytes = 0;       // laid aside, wherever it lies
    std::uint64_t away_bytes = 0;  // that went to NVMe; as many came back once all was taken
};

// One thread. What it is given outlives it. Allocates while it meets new turns, and nothing in later steps of the same
// sizes. Throws Error: does_not_fit (memory for one thing and those that are in use: nothing has changed), storage and,
// of a full disk, does_not_fit, after which only destruction follows.
class Shelf {
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
    void put_back(std::uint64_t turn);  // which was taken: it is laid aside as before
    void drop(std::uint64_t turn);
    bool has(std::uint64_t turn) const;                                // something is laid aside for it
    void clear();                                                      // drops all; where a step ends early
    const ShelfFigures& figures() const noexcept { return figures_; }  // since the last clear()

   private:
    struct Item {
        enum class State : std::uint8_t {
            none,     // nothing is laid aside
            there,    // in memory
            leaving,  // in memory, and on its way out
            away,     // on NVMe alone
            coming,   // on its way into memory
        } state = State::none;
        std::uint32_t unit = 0;
        std::uint64_t bytes = 0;
        pool::Lease memory;
        std::optional<store::SpillBlock> block;
        std::uint64_t block_bytes = 0;  // of the block
        bool stored = false;            // the block has what was laid aside
        bool taken = false;             // its memory is in use
    };
    using Items = std::map<std::uint64_t, Item>;

    pool::Lease room_for(std::uint64_t bytes, std::optional<std::uint64_t> after);
    bool give_room(std::optional<std::uint64_t> after);
    void send_out(Item& item);
    void end_leaving(Item& item);
    void arrive(Item& item);
    void keep_room();
    void fetch(Item& item, pool::Lease memory);
    void fetch_ahead(std::uint64_t turn);

    pool::PinnedPool& pool_;
    pool::UseId use_;
    ShelfMover& mover_;
    std::string setting_;
    Items items_;  // by turn
    std::uint64_t longest_ = 0;
    std::uint64_t staying_ = 0;  // bytes in memory that are not on their way out
    ShelfFigures figures_;
};

}  // namespace penstock::zero
