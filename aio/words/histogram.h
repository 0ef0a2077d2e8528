// Where times fell, kept so cheaply that every transfer can be counted.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace penstock::aio {

// Counts of times in buckets whose width is 1/16 of their power of two, as HdrHistogram has them. From 1024 ns to 2^42
// ns (73 minutes) a quantile is at most 6.25 % above the truth; below, it is at most 1023 ns; above, it is the largest
// time. It is never below the truth. Negative times count as 0.
//
// One thread adds; any thread takes snapshots meanwhile, which may miss what is being added. Fixed size, no allocation.
class LatencySnapshot {
   public:
    std::uint64_t count() const noexcept;
    // The upper edge of the bucket of the time with rank max(1, ceil(share * count)); 0 when empty. REQUIRES: share in
    // 0..1.
    std::chrono::nanoseconds quantile(double share) const noexcept;
    std::chrono::nanoseconds max() const noexcept { return std::chrono::nanoseconds(max_ns_); }
    std::chrono::nanoseconds mean() const noexcept;

    LatencySnapshot& operator+=(const LatencySnapshot& other) noexcept;
    // What was added since `earlier`, a snapshot of the same histogram. The maximum stays the larger one's.
    LatencySnapshot& operator-=(const LatencySnapshot& earlier) noexcept;

   private:
    friend class LatencyHistogram;
    static constexpr int first_octave = 10;  // 2^10 ns
    static constexpr int last_octave = 41;
    static constexpr std::size_t steps = 16;
    static constexpr std::size_t bucket_count =
        (last_octave - first_octave + 1) * steps + 2;  // first: below, last: above
    static std::size_t bucket_of(std::uint64_t ns) noexcept;
    static std::uint64_t upper_edge(std::size_t bucket) noexcept;

    std::array<std::uint64_t, bucket_count> buckets_{};
    std::uint64_t sum_ns_ = 0;
    std::uint64_t max_ns_ = 0;
};

class LatencyHistogram {
   public:
    void add(std::chrono::nanoseconds time) noexcept;
    LatencySnapshot snapshot() const noexcept;

   private:
    // add() writes sum and maximum first, then the bucket with release: no snapshot has a time above its maximum.
    std::array<std::atomic<std::uint64_t>, LatencySnapshot::bucket_count> buckets_{};
    std::atomic<std::uint64_t> sum_ns_{0};
    std::atomic<std::uint64_t> max_ns_{0};
};

}  // namespace penstock::aio
