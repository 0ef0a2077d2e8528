// What the ranks of one run say to each other over a transport while no lane has it: at the opening.
#pragma once

#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/ranks/transport.h"

#include <cstdint>

namespace penstock::zero {

// Each call begins by comparing what the ranks call, so that those that call different things end with words: Error
// (usage), on all. The transport outlives it. One thread at a time.
class Collectives final : public Communicator {
   public:
    static constexpr std::size_t default_piece_bytes = std::size_t{1} << 20;
    // Larger ones go in pieces. REQUIRES: equal on all ranks.
    explicit Collectives(Transport& transport, std::size_t piece_bytes = default_piece_bytes);

    std::uint32_t rank() const noexcept override { return transport_->rank(); }
    std::uint32_t ranks() const noexcept override { return transport_->ranks(); }
    void all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) override;

   private:
    void compare(std::string_view what, std::size_t bytes);

    Transport* transport_;
    std::size_t piece_bytes_;
    std::uint64_t calls_ = 0;
};

}  // namespace penstock::zero
