// What a library of collectives gives to the ranks of one run: two calls. All else that ranks say to each other is made
// of them (collectives.h, lane.h), so that the bits of a sum are ours and no library's.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace penstock::zero {

// One block of memory for each rank, in their order, `stride_bytes` from the beginning of one to that of the next: a
// block may be a piece of a rank's part. Bytes between blocks are neither read nor written.
template <typename Byte>
struct BlocksOfRanks {
    Byte* first = nullptr;
    std::size_t stride_bytes = 0;  // at least `bytes`; may be another one on each rank
    std::size_t bytes = 0;         // of one block; the same on all ranks

    Byte* of(std::uint32_t rank) const noexcept { return first + rank * stride_bytes; }
};
using RankBlocks = BlocksOfRanks<std::byte>;
using ConstRankBlocks = BlocksOfRanks<const std::byte>;

// Every rank makes the same calls in the same order with the same bytes, from 1 to most_call_bytes a block, one at a
// time, from whichever thread. Calls of two transports overlap, on two threads.
//
// A call returns when every rank has made it and this rank's part is done: what others gave is there, and what this one
// gave may be overwritten. It throws Error: peer_lost where a rank is lost or is further behind than the transport's
// own deadline, and after abort(); any other code for a failure of its own. Either way the transport has ended, and
// every call behind it throws. Once a call has returned or thrown, nothing touches its memory any more.
//
// REQUIRES of the destructor: no call is under way.
class Transport {
   public:
    static constexpr std::size_t most_call_bytes = std::size_t{1} << 30;

    virtual ~Transport() = default;
    virtual std::uint32_t rank() const noexcept = 0;  // < ranks()
    virtual std::uint32_t ranks() const noexcept = 0;
    virtual std::string name() const = 0;  // "threads", "torch.distributed gloo": for messages

    // all.of(r) becomes what rank r gave. REQUIRES: mine.size() == all.bytes; it is all.of(rank()), or overlaps
    // nothing.
    virtual void all_gather(std::span<const std::byte> mine, const RankBlocks& all) = 0;
    // from.of(r) becomes what lies at rank r's `to.of(this rank)`. REQUIRES: to.bytes == from.bytes, no overlap.
    virtual void exchange(const ConstRankBlocks& to, const RankBlocks& from) = 0;
    // Ends it, from any thread, any number of times, and waits for nobody. A call that is under way here throws soon;
    // those of other ranks do at their deadline at the latest. Where the library can carry the cause to them, they say
    // it.
    virtual void abort(std::string_view cause) noexcept = 0;
};

// One rank: what it gives, it gets.
class TransportAlone final : public Transport {
   public:
    std::uint32_t rank() const noexcept override { return 0; }
    std::uint32_t ranks() const noexcept override { return 1; }
    std::string name() const override { return "one rank"; }
    void all_gather(std::span<const std::byte> mine, const RankBlocks& all) override;
    void exchange(const ConstRankBlocks& to, const RankBlocks& from) override;
    void abort(std::string_view /*cause*/) noexcept override { aborted_ = true; }

   private:
    void check_not_aborted() const;
    std::atomic<bool> aborted_ = false;
};

}  // namespace penstock::zero
