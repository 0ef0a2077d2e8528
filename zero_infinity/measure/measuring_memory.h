// Memory of the kind that a run has, to measure in.
#pragma once

#include "pinned_pool/pinned_pool.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

inline constexpr std::uint64_t beyond_caches_bytes = 256ULL << 20;  // what no cache holds

// A pool of one use and one lease, huge pages included. Owned by one thread; gives all of it back when it goes.
class MeasuringMemory {
   public:
    // Throws Error (does_not_fit) where the machine has not as much. REQUIRES: bytes > 0.
    explicit MeasuringMemory(std::uint64_t bytes);

    std::span<std::byte> bytes() const noexcept { return lease_.span(); }  // at least as many; zero
    const std::vector<std::string>& notes() const noexcept { return pool_.notes(); }
    // A stuck device may write to it until the process has ended.
    void orphan() noexcept { lease_.orphan(); }

   private:
    pool::PinnedPool pool_;
    pool::Lease lease_;
};

}  // namespace penstock::zero
