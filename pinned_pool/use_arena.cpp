#include "pinned_pool/use_arena.h"

#include "aio/check.h"

#include <algorithm>
#include <utility>

namespace penstock {

void Gauge::add(std::uint64_t bytes) noexcept {
    const std::uint64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::uint64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
}

UseArena::UseArena(std::string name, std::byte* data, std::size_t bytes, Gauge& pool)
    : name_(std::move(name)), data_(data), bytes_(bytes), pool_(pool) {
    free_.reserve(64);
    if (bytes_ > 0) free_.push_back({0, bytes_});
}

std::byte* UseArena::take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (free_.capacity() < leases_ + 2) free_.reserve(2 * leases_ + 2);
    const auto fits = [bytes](const Range& range) { return range.end - range.begin >= bytes; };
    const auto found = std::find_if(free_.begin(), free_.end(), fits);
    if (found == free_.end()) return nullptr;
    const std::size_t begin = found->begin;
    found->begin += bytes;
    if (found->begin == found->end) free_.erase(found);
    ++leases_;
    gauge_.add(bytes);
    pool_.add(bytes);
    return data_ + begin;
}

void UseArena::give_back(std::byte* data, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    const auto begin = static_cast<std::size_t>(data - data_);
    const std::size_t end = begin + bytes;
    const auto after = std::find_if(free_.begin(), free_.end(), [begin](const Range& r) { return r.begin >= begin; });
    const bool clear_behind = after == free_.end() || end <= after->begin;
    const bool clear_before = after == free_.begin() || std::prev(after)->end <= begin;
    PENSTOCK_CHECK(end <= bytes_ && clear_behind && clear_before, "{}: bytes {} to {} come back but are free", name_,
                   begin, end);

    const bool touches_before = after != free_.begin() && std::prev(after)->end == begin;
    const bool touches_behind = after != free_.end() && after->begin == end;
    if (touches_before && touches_behind) {
        std::prev(after)->end = after->end;
        free_.erase(after);
    } else if (touches_before) {
        std::prev(after)->end = end;
    } else if (touches_behind) {
        after->begin = begin;
    } else {
        free_.insert(after, {begin, end});
    }
    --leases_;
    gauge_.subtract(bytes);
    pool_.subtract(bytes);
}

std::size_t UseArena::longest_free_bytes() const {
    const std::lock_guard lock(mutex_);
    std::size_t longest = 0;
    for (const Range& range : free_) longest = std::max(longest, range.end - range.begin);
    return longest;
}

}  // namespace penstock
