// What the ranks of one run say to each other: the collectives that ZeRO needs, and no more.
//
// Every rank calls the same collectives in the same order with the same sizes; each returns when this rank's part is
// done, which is not before every rank that its result depends on has called it.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/layout/unit.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::zero {

// Owned by whoever started the ranks; outlives what uses it. All calls on the compute thread, and none while another is
// under way. A rank that is lost or does not come ends each of them with an Error on the ranks that are left.
class Communicator {
   public:
    virtual ~Communicator() = default;
    virtual std::uint32_t rank() const noexcept = 0;  // < ranks()
    virtual std::uint32_t ranks() const noexcept = 0;
    Partition partition() const noexcept { return {rank(), ranks()}; }

    // All ranks' shards one after the other, in the order of the ranks. The own shard may lie in its place in `all`.
    // REQUIRES: all.size() == ranks() × shard.size().
    virtual void all_gather(std::span<const std::byte> shard, std::span<std::byte> all) = 0;
    // The sum over the ranks of this rank's part of `all`, of float elements of `type`, added in the order of the
    // ranks. The part may lie in its place in `all`. REQUIRES: all.size() == ranks() × shard.size(), whole elements.
    virtual void reduce_scatter(std::span<const std::byte> all, PlaneType type, std::span<std::byte> shard) = 0;
    // Each value becomes its sum over the ranks, added in their order: the same bits on every rank. Returns after all
    // ranks have called it.
    virtual void all_reduce(std::span<double> values) = 0;
    // All ranks get what `root` has. REQUIRES: root < ranks().
    virtual void broadcast(std::span<std::byte> bytes, std::uint32_t root) = 0;
    // Returns after all ranks have called it.
    virtual void barrier() = 0;
};

// One rank alone: nobody to wait for, nothing to add.
class LocalCommunicator final : public Communicator {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 1; }
    void all_gather(std::span<const std::byte> shard, std::span<std::byte> all) override;
    void reduce_scatter(std::span<const std::byte> all, PlaneType type, std::span<std::byte> shard) override;
    void all_reduce(std::span<double> values) override;
    void broadcast(std::span<std::byte> bytes, std::uint32_t root) override;
    void barrier() override {}
};

// Each rank's number, in the order of the ranks, exactly. REQUIRES: of_all.size() == ranks().
void gather(Communicator& communicator, std::uint64_t own, std::span<std::uint64_t> of_all);
// The largest of them.
std::uint64_t agree_on_largest(Communicator& communicator, std::uint64_t own);

}  // namespace penstock::zero
