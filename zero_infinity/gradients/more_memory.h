// Memory that the plan of a session does not have, for what a program asks for beyond what was planned: ordinary pages,
// within what its budget leaves and what the machine has.
#pragma once

#include "pinned_pool/region.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::zero {

struct MoreMemoryLimit {
    std::uint64_t bytes = 0;  // what the budget leaves
    std::string budget;       // its key, for the refusal
};

// One thread at a time.
class MoreMemory {
   public:
    explicit MoreMemory(MoreMemoryLimit limit) : limit_(std::move(limit)) {}
    // Zeros, at a granule, until it ends. `unit`: whose gradients they are for. Throws Error (does_not_fit): the budget
    // or the machine has no room for them; and as Region.
    std::byte* take(std::uint64_t bytes, std::string_view unit);
    void orphan() noexcept;  // somebody who is lost may write there at any time

   private:
    MoreMemoryLimit limit_;
    std::uint64_t taken_ = 0;
    std::vector<pool::Region> parts_;
};

}  // namespace penstock::zero
