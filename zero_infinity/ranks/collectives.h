// What the ranks of one run say to each other over a transport while no lane has it: at the opening.
#pragma once

#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/ranks/transport.h"

#include <vector>

namespace penstock::zero {

// The collectives of communicator.h made of a transport's two. With more than one rank each begins by comparing what
// the ranks call, so that those that call different things end with words: Error (usage), on all. Owns memory for one
// piece of each rank; the transport outlives it. One thread at a time. Pieces are equal on all ranks.
class Collectives final : public Communicator {
   public:
    static constexpr std::size_t default_piece_bytes = std::size_t{1} << 20;
    explicit Collectives(Transport& transport, std::size_t piece_bytes = default_piece_bytes);

    std::uint32_t rank() const noexcept override { return transport_->rank(); }
    std::uint32_t ranks() const noexcept override { return transport_->ranks(); }
    void all_gather(std::span<const std::byte> shard, std::span<std::byte> all) override;
    void reduce_scatter(std::span<const std::byte> all, PlaneType type, std::span<std::byte> shard) override;
    void all_reduce(std::span<double> values) override;
    void broadcast(std::span<std::byte> bytes, std::uint32_t root) override;
    void barrier() override;

   private:
    void compare(const char* what, std::size_t bytes, std::uint64_t form = 0);
    std::span<std::byte> area(std::size_t block_bytes);  // a block of each rank

    Transport* transport_;
    std::size_t piece_bytes_;
    std::vector<std::byte> area_;
    std::uint64_t calls_ = 0;
};

}  // namespace penstock::zero
