// One use's range of the arena: what is granted of it, to how many claims.
#pragma once

#include "pinned_pool/free_ranges.h"
#include "pinned_pool/pinned_pool.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <span>
#include <string>

namespace penstock::pool {

// Bytes granted now and at most so far. Any thread.
class Gauge {
   public:
    void add(std::uint64_t bytes) noexcept;
    void subtract(std::uint64_t bytes) noexcept { now_.fetch_sub(bytes, std::memory_order_relaxed); }
    std::uint64_t now() const noexcept { return now_.load(std::memory_order_relaxed); }
    std::uint64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> now_{0};
    std::atomic<std::uint64_t> peak_{0};
};

enum class BlockState : std::uint8_t {
    unused,    // a record without memory, in the arena's list
    leased,    // memory that a lease, and perhaps holds, claim
    parked,    // the same without the lease
    orphaned,  // memory that is never granted again, claimed or not
};

// A granted part of a use's range. The record is the arena's and serves again when the memory has come back.
struct Block {
    UseArena* arena = nullptr;
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    // The lease and its holds. Holds change it without the lock, since only who has a claim adds one; the lease's goes
    // under the lock, so that the last hold, which takes the lock afterwards, finds the block parked.
    std::atomic<std::uint32_t> claims{0};
    BlockState state = BlockState::unused;  // the arena's lock
    Block* next_unused = nullptr;           // the arena's lock
};

// Grants, counts and takes back. Any thread.
class UseArena {
   public:
    // Memory and pool gauge are the caller's and outlive the arena; `pool` gathers over all uses. The memory is not
    // looked at.
    UseArena(std::string name, std::span<std::byte> memory, Gauge& pool);

    // With one claim, the lease's; null when no free range is long enough. REQUIRES: requested_bytes > 0.
    Block* take(std::size_t requested_bytes);
    // Each ends one claim of the caller's; the last one returns the memory, unless it is orphaned.
    void end_lease(Block& block) noexcept;
    void end_hold(Block& block) noexcept;
    void orphan(Block& block) noexcept;

    const std::string& name() const noexcept { return name_; }
    std::span<std::byte> memory() const noexcept { return memory_; }
    const Gauge& gauge() const noexcept { return gauge_; }
    UseFigures figures() const;

   private:
    // REQUIRES of these: mutex_ is held.
    void count_refusal(std::size_t requested_bytes);
    Block& unused_block();
    void take_back(Block& block) noexcept;

    const std::string name_;
    const std::span<std::byte> memory_;
    Gauge& pool_;
    Gauge gauge_;

    mutable std::mutex mutex_;  // of all that follows
    FreeRanges free_;
    std::size_t granted_count_ = 0;
    std::deque<Block> blocks_;  // as many as were ever granted at once; never moved
    Block* first_unused_ = nullptr;
    UseFigures counts_;  // what is counted as it happens; figures() adds the rest
};

}  // namespace penstock::pool
