// Our side of the tensor case: tensors of mixed odd lengths, each one transfer of one exact lease.
#pragma once

#include "aio/words/io_error.h"
#include "bench/io/io_bench.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::bench {

// Odd lengths from 1 MB to 1 GB, at random with each power of ten equally likely, a good half of `total_bytes` or more
// together and never above. The same seed gives the same lengths. REQUIRES: total_bytes >= 4 MB.
std::vector<std::uint64_t> tensor_lengths(std::uint64_t total_bytes, std::uint64_t seed);

// Where each tensor lies: extents rounded up to what direct I/O asks for.
struct TensorPlan {
    std::vector<std::uint64_t> bytes;
    std::vector<std::size_t> lease_bytes;  // exact, unless the alignment is beyond the pool's granule
    std::vector<std::uint64_t> extent_bytes;
    std::vector<std::uint64_t> offset_bytes;
};

// The bench's file as tensors. The first and last 8 bytes of each say which it is and when it was written. Both calls
// take the bench's round_seconds() and then as long as the tensors that have begun need, each once at least; both do
// nothing with the device beside what they measure, so that the next contender finds it as after any other's turn.
class TensorRun {
   public:
    static constexpr std::uint64_t seed = 2026;  // of the lengths

    explicit TensorRun(IoBench& bench);

    zero::Moved write();
    // What came back must be what the last write() wrote: Error (storage) when it is not, or when nothing was written.
    zero::Moved read();

    const TensorPlan& plan() const noexcept { return plan_; }
    zero::IoRig& rig() noexcept { return rig_; }

   private:
    using Mark = std::array<std::byte, 8>;
    zero::Moved transfer(aio::IoKind kind);
    Mark mark_of(std::size_t tensor) const;
    void put_marks(std::size_t tensor, const Mark& mark);
    void expect_marks() const;

    IoBench& bench_;
    const TensorPlan plan_;
    zero::IoRig rig_;
    std::uint64_t generation_ = 0;  // of the marks: one per write()
};

}  // namespace penstock::bench
