// The middle one of three ranks, without the other two.
#pragma once

#include "zero_infinity/ranks/communicator.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace penstock::testing {

// The others have said their numbers already.
class OneOfThree final : public zero::Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 1; }
    std::uint32_t ranks() const noexcept override { return 3; }
    void all_gather(std::string_view, std::span<const std::byte> shard, std::span<std::byte> all) override {
        ++gathers;
        const std::array<std::uint64_t, 3> numbers{others[0], 0, others[1]};
        std::memcpy(all.data(), numbers.data(), all.size());
        std::memcpy(all.data() + shard.size(), shard.data(), shard.size());
    }

    std::array<std::uint64_t, 2> others{};
    int gathers = 0;
};

}  // namespace penstock::testing
