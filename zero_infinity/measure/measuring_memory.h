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

// A pool of one use, huge pages included, and its leases, each exact. Owned by one thread; gives all of it back when it
// goes.
class MeasuringMemory {
   public:
    // `setting` is what makes it smaller, for the refusal. Throws Error (does_not_fit) where the machine has not as
    // much. REQUIRES: a lease; each of some bytes.
    explicit MeasuringMemory(const std::vector<std::size_t>& lease_bytes, const std::string& setting = "");
    explicit MeasuringMemory(std::size_t bytes) : MeasuringMemory(std::vector<std::size_t>{bytes}) {}

    std::size_t leases() const noexcept { return leases_.size(); }
    std::span<std::byte> bytes(std::size_t lease = 0) const noexcept { return leases_[lease].span(); }  // zero at first
    const pool::PinnedPool& pool() const noexcept { return pool_; }
    // A stuck device may write to the lease until the process has ended.
    void orphan(std::size_t lease) noexcept { leases_[lease].orphan(); }

   private:
    pool::PinnedPool pool_;
    std::vector<pool::Lease> leases_;
};

// A drive that compresses gains nothing by what is written from there.
void fill_random(std::span<std::byte> memory, std::uint64_t seed);

}  // namespace penstock::zero
