// The other ranks, as a session speaks to them: by calls of its own while it opens, then through its lane.
#pragma once

#include "aio/words/error.h"
#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/ranks/collectives.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/ranks/lane.h"

#include <cstddef>
#include <optional>
#include <vector>

namespace penstock::zero {

// Two transports of the same ranks, which nobody else uses meanwhile. Null: one rank alone.
struct RankWays {
    Transport* control = nullptr;  // what is small
    Transport* bulk = nullptr;
};

// Compute thread only, but for fail(). The transports outlive it.
class SessionRanks final : public Communicator {
   public:
    explicit SessionRanks(RankWays ways);
    // As fail(), unless end() came before.
    ~SessionRanks() override;

    std::uint32_t rank() const noexcept override { return partition_.rank; }
    std::uint32_t ranks() const noexcept override { return partition_.ranks; }
    void all_gather(std::string_view what, std::span<const std::byte> mine, std::span<std::byte> all) override;

    // From now on the transports are the lane's. Takes memory of the pool for pieces of all ranks. REQUIRES: several
    // ranks; equal pieces on all.
    void open_lane(const ModelLayout& layout, std::uint64_t piece_bytes, pool::PinnedPool& pool);
    Lane* lane() noexcept { return lane_ ? &*lane_ : nullptr; }  // null: one rank, or not opened yet

    // This rank can not go on: nor can the others. Any thread.
    void fail(const Error& cause) noexcept;
    // Nothing is said from now on. `whole`: all ranks end, after the same calls: waits for them; else as fail(). What
    // calls were at is nobody's then.
    void end(bool whole) noexcept;

   private:
    bool several() const noexcept { return partition_.ranks > 1; }

    RankWays ways_;
    Partition partition_;
    std::optional<Collectives> opening_;  // until the lane is open
    pool::Lease area_;
    std::optional<Lane> lane_;
    bool ended_ = false;
};

}  // namespace penstock::zero
