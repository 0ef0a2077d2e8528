// Memory that compute reads, where tiles do not arrive in it: the device's own, or, where it has none, the pool's.
#pragma once

#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace penstock::zero {

class ApartMemory {
   public:
    // Both outlive it.
    ApartMemory(pool::PinnedPool& pool, Device& device) : pool_(pool), device_(device) {}

    // For good. Throws Error (does_not_fit) where the device, or the pool's use of that name, has not so much.
    std::byte* take(const char* use, std::uint64_t bytes) {
        if (!device_.shares_host_memory()) return device_.allocate(bytes, use);
        leases_.push_back(pool_.acquire(pool_.use(use), bytes));
        return leases_.back().data();
    }

   private:
    pool::PinnedPool& pool_;
    Device& device_;
    std::vector<pool::Lease> leases_;
};

}  // namespace penstock::zero
