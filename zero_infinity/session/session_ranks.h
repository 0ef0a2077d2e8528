// The other ranks, as a session speaks to them: by calls of its own while it opens, then through its lane.
#pragma once

#include "aio/words/error.h"
#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/ranks/collectives.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/ranks/lane.h"
#include "zero_infinity/ranks/watch/watch.h"

#include <cstddef>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

namespace penstock::zero {

// Two transports of the same ranks, which nobody else uses meanwhile. Null: one rank alone.
struct RankWays {
    Transport* control = nullptr;  // what is small
    Transport* bulk = nullptr;
    Board* board = nullptr;  // null: who is lost is noticed by the transports alone
};

// Compute thread only. The transports and the board outlive it.
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

    // What this rank does, for who finds it silent.
    void at(std::string_view where);
    // This rank cannot go on: nor can the others. What it ends with: `own`, or what the run has ended by before.
    Error failed(const Error& own) noexcept;
    // Nothing is said from now on. `whole`: all ranks end, after the same calls: waits for them; else the others fail.
    // What calls were at is nobody's then.
    void end(bool whole) noexcept;

   private:
    bool several() const noexcept { return partition_.ranks > 1; }
    void abort(const Error& cause) noexcept;

    RankWays ways_;
    Partition partition_;
    std::optional<Collectives> opening_;  // until the lane is open
    pool::Lease area_;
    std::mutex of_lane_;  // that there is one: the watch's thread asks, too
    std::optional<Lane> lane_;
    bool ended_ = false;
    std::optional<Watch> watch_;  // ends first
};

}  // namespace penstock::zero
