// Leases of pinned memory, cut from one arena under a hard budget.
#pragma once

#include "pinned_pool/budget.h"
#include "pinned_pool/region.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::pool {

class PinnedPool;
class UseArena;  // one use's share of the arena, and which parts of it are free
struct Block;    // a granted part of it, and who still claims it

// A use of one pool's budget, found once by name and then passed by value.
struct UseId {
    std::uint32_t index = std::numeric_limits<std::uint32_t>::max();  // none: refused by a check
};

// A claim on a lease's memory by something that works on it by itself: a transfer, a copy on a device's stream. The
// owner of the lease may drop it without waiting: the memory is parked until the lease and all its holds are gone, and
// then returns to the pool. Move-only.
//
// A hold is made from a lease or from another hold, by the thread that owns that. Whatever holders did with the memory
// before they dropped it happens before the next grant of it. Dropping a hold allocates nothing, calls no driver
// and takes the use's lock only when it is the last claim, so Transfer::done() and a stream's host callback may do it.
//
// Dropping a hold says that nothing works on the memory for it any more. Who owns a Transfer and its hold calls
// orphan() when the transfer is orphaned().
class Hold {
   public:
    Hold() noexcept = default;
    ~Hold() { reset(); }
    Hold(Hold&& other) noexcept;
    Hold& operator=(Hold&& other) noexcept;

    explicit operator bool() const noexcept { return block_ != nullptr; }
    Hold hold() const noexcept;  // REQUIRES: not empty
    void reset() noexcept;
    void orphan() noexcept;  // as Lease::orphan

   private:
    friend class Lease;
    explicit Hold(Block* block) noexcept : block_(block) {}
    Block* block_ = nullptr;
};

// A move-only piece of the pool; empty when default-constructed or moved from. Returns its memory when destroyed, on
// any thread, or parks it while there are holds; one lease is used by one thread at a time.
class Lease {
   public:
    Lease() noexcept = default;
    ~Lease() { reset(); }
    Lease(Lease&& other) noexcept;
    Lease& operator=(Lease&& other) noexcept;

    explicit operator bool() const noexcept { return data_ != nullptr; }
    std::byte* data() const noexcept { return data_; }     // granule-aligned; holds what the last lease left there
    std::size_t bytes() const noexcept { return bytes_; }  // granted: the request rounded up to the granule
    std::span<std::byte> span() const noexcept { return {data_, bytes_}; }

    Hold hold() const noexcept;  // REQUIRES: not empty
    void reset() noexcept;
    // A stuck device may write to this memory until the process has ended: it is never granted again and never
    // unmapped. Empties the lease; nothing happens to an empty one. Other claims then have no more effect than to end.
    void orphan() noexcept;

   private:
    friend class PinnedPool;
    Block* block_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

// What became of the memory of one use: a snapshot under the use's lock. Free bytes are bytes - granted_bytes.
struct UseFigures {
    std::uint64_t bytes = 0;          // the use's whole range
    std::uint64_t granted_bytes = 0;  // now, parked and orphaned ones included
    std::uint64_t peak_bytes = 0;     // granted at most so far
    std::uint64_t parked_bytes = 0;   // now: lease gone, holds left
    std::uint64_t peak_parked_bytes = 0;
    std::uint64_t orphaned_bytes = 0;
    std::uint64_t longest_free_bytes = 0;  // the longest request that would be granted now
    std::uint64_t reach_bytes = 0;         // end of the highest byte ever granted: what the use would have had to have
    // So far:
    std::uint64_t leases = 0;
    std::uint64_t requested_bytes = 0;  // of these leases
    std::uint64_t requested_granted_bytes = 0;
    std::uint64_t refused = 0;             // requests that found no room
    std::uint64_t refused_fragmented = 0;  // of them: the free bytes would have sufficed, in one piece

    // 1 - longest free ÷ free bytes: 0 when the free memory is one piece (or none is free), towards 1 when it is dust.
    double fragmentation() const noexcept;
};

struct PoolOptions {
    unsigned touch_threads = 2;
    HugePages huge_pages = HugePages::wanted;
    // With a device: tried, since its driver goes by limits of its own. Refused, it is ordinary memory and a note.
    Registration registration = Registration::none;
    std::size_t piece_bytes = max_registration_bytes;  // a multiple of huge_page_bytes; tests make it small
};

// Each use has a range of the arena to itself, so that one use can neither starve nor fragment another. Within a use:
// first fit over exact sizes, neighbours merged on return; one short lock per use. Thread-safe. A record per lease is
// reused; the pool allocates only when more leases of a use are out than ever before. At worst, first fit needs about
// log2(n) times the most bytes granted at once, where n is the longest lease in granules (J. M. Robson, Worst case
// fragmentation of first fit and best fit storage allocation strategies, The Computer Journal 20(3), 1977);
// UseFigures::reach_bytes is what it did need.
//
// Memory is registered in pieces of piece_bytes, counted from the arena's begin. Leases ignore the seams; whoever
// copies to a device cuts at seam_after(). A transfer needs no cut.
//
// Outlives its leases and holds (checked), except claims on orphaned memory: when there is any, the arena stays mapped
// and registered, and its records stay, until the process has ended. Destroy every Io first: its destructor decides
// what is lost.
//
//   Budget budget(64 << 20, "memory.host_budget");
//   budget.add({"staging", 16 << 20, "memory.staging"});
//   PinnedPool pool(budget, MachineMemory::read(), {});
//   if (auto lease = pool.try_acquire(pool.use("staging"), 3'000'000)) { … lease->data() … }
class PinnedPool {
   public:
    // Checks the budget before the first allocation; throws Error: does_not_fit (budget), out_of_memory (the
    // mapping is refused).
    PinnedPool(const Budget& budget, const MachineMemory& machine, PoolOptions options);
    ~PinnedPool();
    PinnedPool(const PinnedPool&) = delete;
    PinnedPool& operator=(const PinnedPool&) = delete;

    // REQUIRES: the budget has a use of that name.
    UseId use(std::string_view name) const;

    // Never waits for memory, never grows; nothing when no free range of the use is long enough. REQUIRES: bytes > 0.
    std::optional<Lease> try_acquire(UseId use, std::size_t bytes);
    // For memory that the plan guarantees. REQUIRES: there is room (checked). That is sure while no lease of the use
    // has been returned, and when all its leases have the same bytes, which divide the use's; any other plan leaves
    // slack.
    Lease acquire(UseId use, std::size_t bytes);

    std::uint64_t budget_bytes() const noexcept;  // the limit
    // The sum of the uses. What is mapped is rounded up to whole huge pages where the limit allows it.
    std::uint64_t arena_bytes() const noexcept;
    std::uint64_t in_use_bytes() const noexcept;  // granted now
    std::uint64_t peak_bytes() const noexcept;    // granted at most so far
    std::uint64_t in_use_bytes(UseId use) const noexcept;
    std::uint64_t peak_bytes(UseId use) const noexcept;
    UseFigures figures(UseId use) const;
    // The arena as Io::register_memory takes it, with its tail in small pages by itself (ring_ranges.h). Not cut at the
    // seams, which are a device's.
    std::vector<std::span<std::byte>> ring_ranges() const;
    // Bytes from `data` to the next seam, which may lie behind the arena's end; the largest number when `data` does not
    // lie in the arena.
    std::size_t seam_after(const std::byte* data) const noexcept;
    bool registered() const noexcept;           // with the device
    std::uint64_t huge_bytes() const noexcept;  // of what is mapped, at construction
    // Lines for the composition root to log: huge pages or registration that were refused.
    const std::vector<std::string>& notes() const noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock::pool
