// Leases of pinned memory, cut from one arena under a hard budget.
#pragma once

#include "pinned_pool/budget.h"
#include "pinned_pool/region.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class PinnedPool;
class UseArena;  // one use's share of the arena, and which parts of it are free

// A use of the budget, found once by name and then passed by value.
struct UseId {
    std::uint32_t index = 0;
};

// A move-only piece of the pool; empty when default-constructed or moved from. Returns its memory when destroyed, on
// any thread; one lease is used by one thread at a time. Whoever hands the memory to a transfer or a device copy keeps
// the lease until that has ended.
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
    void reset() noexcept;

   private:
    friend class PinnedPool;
    UseArena* arena_ = nullptr;
    std::byte* data_ = nullptr;
    std::size_t bytes_ = 0;
};

struct PoolOptions {
    unsigned touch_threads = 2;
    Registration registration = Registration::none;
};

// Each use has a range of the arena to itself, so that one use can neither starve nor fragment another. Within a use:
// first fit over exact sizes, neighbours merged on return. Thread-safe. Outlives its leases (checked). Leases are not
// split between registered pieces: with Registration::device one may span two of them (region.h).
//
//   Budget budget(64 << 20, "memory.host_budget");
//   budget.add({"staging", 16 << 20, "memory.staging"});
//   PinnedPool pool(budget, MachineMemory::read(), {});
//   if (auto lease = pool.try_acquire(pool.use("staging"), 3'000'000)) { … lease->data() … }
class PinnedPool {
   public:
    // Checks the budget before the first allocation; throws Error (does_not_fit).
    PinnedPool(const Budget& budget, const MachineMemory& machine, PoolOptions options);
    ~PinnedPool();
    PinnedPool(const PinnedPool&) = delete;
    PinnedPool& operator=(const PinnedPool&) = delete;

    // REQUIRES: the budget has a use of that name.
    UseId use(std::string_view name) const;

    // Never waits for memory, never grows; nothing when no free range of the use is long enough. REQUIRES: bytes > 0.
    std::optional<Lease> try_acquire(UseId use, std::size_t bytes);
    // For memory that the plan guarantees. REQUIRES: there is room (checked).
    Lease acquire(UseId use, std::size_t bytes);

    std::uint64_t budget_bytes() const noexcept;  // the limit
    std::uint64_t arena_bytes() const noexcept;   // sum of the uses: what is allocated
    std::uint64_t in_use_bytes() const noexcept;  // granted now
    std::uint64_t peak_bytes() const noexcept;    // granted at most so far
    std::uint64_t in_use_bytes(UseId use) const noexcept;
    std::uint64_t peak_bytes(UseId use) const noexcept;
    // Lines for the composition root to log: huge pages or registration that were refused.
    const std::vector<std::string>& notes() const noexcept;

   private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace penstock
