#include "pinned_pool/free_ranges.h"

#include "aio/words/check.h"

#include <algorithm>
#include <iterator>

namespace penstock::pool {

FreeRanges::FreeRanges(std::size_t bytes) : bytes_(bytes) {
    reserve(63);
    if (bytes_ > 0) ranges_.push_back({0, bytes_});
}

// Free ranges lie before, between and behind those that are taken.
void FreeRanges::reserve(std::size_t taken) {
    if (ranges_.capacity() < taken + 1) ranges_.reserve(2 * (taken + 1));
}

bool FreeRanges::fits(std::size_t bytes) const noexcept {
    return std::any_of(ranges_.begin(), ranges_.end(),
                       [bytes](const Range& range) { return range.end - range.begin >= bytes; });
}

std::size_t FreeRanges::take(std::size_t bytes) noexcept {
    const auto found = std::find_if(ranges_.begin(), ranges_.end(),
                                    [bytes](const Range& range) { return range.end - range.begin >= bytes; });
    PENSTOCK_CHECK(found != ranges_.end(), "{} bytes do not fit", bytes);
    const std::size_t begin = found->begin;
    found->begin += bytes;
    if (found->begin == found->end) ranges_.erase(found);
    return begin;
}

void FreeRanges::give_back(std::size_t begin, std::size_t bytes) noexcept {
    const std::size_t end = begin + bytes;
    const auto after = std::lower_bound(ranges_.begin(), ranges_.end(), begin,
                                        [](const Range& r, std::size_t at) { return r.begin < at; });
    const bool clear_behind = after == ranges_.end() || end <= after->begin;
    const bool clear_before = after == ranges_.begin() || std::prev(after)->end <= begin;
    PENSTOCK_CHECK(begin < end && end <= bytes_ && clear_behind && clear_before,
                   "bytes {} to {} of {} come back but are free", begin, end, bytes_);

    const bool touches_before = after != ranges_.begin() && std::prev(after)->end == begin;
    const bool touches_behind = after != ranges_.end() && after->begin == end;
    if (touches_before && touches_behind) {
        std::prev(after)->end = after->end;
        ranges_.erase(after);
    } else if (touches_before) {
        std::prev(after)->end = end;
    } else if (touches_behind) {
        after->begin = begin;
    } else {
        ranges_.insert(after, {begin, end});
    }
}

std::size_t FreeRanges::longest() const noexcept {
    std::size_t longest = 0;
    for (const Range& range : ranges_) longest = std::max(longest, range.end - range.begin);
    return longest;
}

}  // namespace penstock::pool
