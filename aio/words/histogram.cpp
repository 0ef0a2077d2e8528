#include "aio/words/histogram.h"

#include "aio/words/check.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace penstock::aio {

namespace {

// Only one thread writes: a plain load and store, readable elsewhere, without a locked instruction.
void raise(std::atomic<std::uint64_t>& counter, std::uint64_t by, std::memory_order order) noexcept {
    counter.store(counter.load(std::memory_order_relaxed) + by, order);
}

}  // namespace

std::size_t LatencySnapshot::bucket_of(std::uint64_t ns) noexcept {
    const int octave = static_cast<int>(std::bit_width(ns)) - 1;
    if (octave < first_octave) return 0;
    if (octave > last_octave) return bucket_count - 1;
    const std::uint64_t step = (ns >> (octave - 4)) % steps;  // the four bits after the leading one
    return 1 + static_cast<std::size_t>(octave - first_octave) * steps + step;
}

// The longest time that belongs to the bucket. Bucket 1 begins at 1024 ns and is 64 ns wide: its edge is 1087.
std::uint64_t LatencySnapshot::upper_edge(std::size_t bucket) noexcept {
    if (bucket == 0) return (std::uint64_t{1} << first_octave) - 1;
    const std::size_t octave = first_octave + (bucket - 1) / steps;
    const std::uint64_t step = (bucket - 1) % steps;
    return ((steps + step + 1) << (octave - 4)) - 1;
}

std::uint64_t LatencySnapshot::count() const noexcept {
    std::uint64_t total = 0;
    for (const std::uint64_t bucket : buckets_) total += bucket;
    return total;
}

std::chrono::nanoseconds LatencySnapshot::quantile(double share) const noexcept {
    PENSTOCK_CHECK(share >= 0 && share <= 1, "a share of {}", share);
    const std::uint64_t total = count();
    if (total == 0) return std::chrono::nanoseconds(0);
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total)));
    const std::uint64_t rank = std::clamp<std::uint64_t>(wanted, 1, total);
    std::uint64_t before = 0;
    for (std::size_t bucket = 0; bucket + 1 < bucket_count; ++bucket) {
        before += buckets_[bucket];
        if (before >= rank) return std::chrono::nanoseconds(upper_edge(bucket));
    }
    return max();
}

std::chrono::nanoseconds LatencySnapshot::mean() const noexcept {
    const std::uint64_t total = count();
    return std::chrono::nanoseconds(total == 0 ? 0 : sum_ns_ / total);
}

LatencySnapshot& LatencySnapshot::operator+=(const LatencySnapshot& other) noexcept {
    for (std::size_t bucket = 0; bucket < bucket_count; ++bucket) buckets_[bucket] += other.buckets_[bucket];
    sum_ns_ += other.sum_ns_;
    max_ns_ = std::max(max_ns_, other.max_ns_);
    return *this;
}

LatencySnapshot& LatencySnapshot::operator-=(const LatencySnapshot& earlier) noexcept {
    for (std::size_t bucket = 0; bucket < bucket_count; ++bucket) buckets_[bucket] -= earlier.buckets_[bucket];
    sum_ns_ -= earlier.sum_ns_;
    max_ns_ = std::max(max_ns_, earlier.max_ns_);
    return *this;
}

void LatencyHistogram::add(std::chrono::nanoseconds time) noexcept {
    const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0));
    raise(sum_ns_, ns, std::memory_order_relaxed);
    if (ns > max_ns_.load(std::memory_order_relaxed)) max_ns_.store(ns, std::memory_order_relaxed);
    raise(buckets_[LatencySnapshot::bucket_of(ns)], 1, std::memory_order_release);
}

LatencySnapshot LatencyHistogram::snapshot() const noexcept {
    LatencySnapshot snapshot;
    for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket)
        snapshot.buckets_[bucket] = buckets_[bucket].load(std::memory_order_acquire);
    snapshot.sum_ns_ = sum_ns_.load(std::memory_order_relaxed);
    snapshot.max_ns_ = max_ns_.load(std::memory_order_relaxed);
    return snapshot;
}

}  // namespace penstock::aio
