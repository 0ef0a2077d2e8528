// Transports over the functions that a C program gives.
#pragma once

#include "zero_infinity/ranks/capi/penstock_ranks.h"
#include "zero_infinity/ranks/transport.h"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace penstock::zero {

// What a program cannot be without: one that was written before there was a board gives none.
inline constexpr std::size_t least_ranks_bytes = offsetof(penstock_ranks, put);

// What a caller gave, checked and copied. Throws store::Refusal (usage) on what is not whole. The functions outlive it.
class RankCalls {
   public:
    explicit RankCalls(const penstock_ranks* given);
    const penstock_ranks& calls() const noexcept { return calls_; }
    const std::string& name() const noexcept { return name_; }
    bool has_board() const noexcept { return calls_.get != nullptr; }
    // What a call returned: Error(peer_lost) but for PENSTOCK_OK.
    void check(penstock_status status, const penstock_error& error) const;

   private:
    penstock_ranks calls_;
    std::string name_;
};

// One channel of them. Blocks with bytes between them pass through memory of its own. The calls outlive it.
class CalledTransport final : public Transport {
   public:
    CalledTransport(const RankCalls& calls, penstock_channel channel) : calls_(&calls), channel_(channel) {}

    std::uint32_t rank() const noexcept override { return calls_->calls().rank; }
    std::uint32_t ranks() const noexcept override { return calls_->calls().ranks; }
    std::string name() const override { return calls_->name(); }
    void all_gather(std::span<const std::byte> mine, const RankBlocks& all) override;
    void exchange(const ConstRankBlocks& to, const RankBlocks& from) override;
    void abort(std::string_view cause) noexcept override;

   private:
    const RankCalls* calls_;
    penstock_channel channel_;
    std::vector<std::byte> sent_, come_;
};

}  // namespace penstock::zero
