#include "aio/backend/registered.h"

#include "aio/words/check.h"

#include <algorithm>
#include <functional>

namespace penstock::aio {

// Compares lengths, not ends: data + bytes may not be formed where it would pass the range.
bool RegisteredRanges::Range::holds(const std::byte* data, std::uint32_t bytes) const noexcept {
    const std::less_equal<> not_after;
    return not_after(begin, data) && not_after(data, end) && bytes <= static_cast<std::size_t>(end - data);
}

void RegisteredRanges::set(std::span<const std::span<std::byte>> ranges) {
    PENSTOCK_CHECK(ranges.size() <= max_registered, "{} ranges are more than {}", ranges.size(), max_registered);
    clear();
    ranges_.reserve(ranges.size());
    for (const std::span<std::byte> range : ranges) {
        PENSTOCK_CHECK(!range.empty() && range.size() <= max_registered_bytes, "a range of {} bytes", range.size());
        ranges_.push_back({range.data(), range.data() + range.size(), static_cast<int>(ranges_.size())});
    }
    std::ranges::sort(ranges_, std::less<>(), &Range::begin);
    for (std::size_t i = 1; i < ranges_.size(); ++i) {
        PENSTOCK_CHECK(std::less_equal<>()(ranges_[i - 1].end, ranges_[i].begin), "ranges {} and {} overlap",
                       ranges_[i - 1].place, ranges_[i].place);
    }
}

void RegisteredRanges::clear() noexcept {
    ranges_.clear();
    last_ = 0;
}

int RegisteredRanges::place_of(const std::byte* data, std::uint32_t bytes) noexcept {
    if (ranges_.empty()) return none;
    if (ranges_[last_].holds(data, bytes)) return ranges_[last_].place;
    const auto after = std::ranges::upper_bound(ranges_, data, std::less<>(), &Range::begin);
    if (after == ranges_.begin() || !std::prev(after)->holds(data, bytes)) return none;
    last_ = static_cast<std::size_t>(std::prev(after) - ranges_.begin());
    return ranges_[last_].place;
}

void RegisteredFiles::set(std::span<const RegisteredFile> files) {
    PENSTOCK_CHECK(files.size() <= max_registered, "{} files are more than {}", files.size(), max_registered);
    clear();
    files_.reserve(files.size());
    for (const RegisteredFile& file : files) {
        PENSTOCK_CHECK(file.fd >= 0 && file.id != 0, "the file {} with the id {} is not open", file.fd, file.id);
        files_.push_back({.id = file.id, .place = static_cast<int>(files_.size())});
    }
    std::ranges::sort(files_, std::less<>(), &Entry::id);
    const auto twice = std::ranges::adjacent_find(files_, std::equal_to<>(), &Entry::id);
    PENSTOCK_CHECK(twice == files_.end(), "the file with the id {} is given twice", twice->id);
}

void RegisteredFiles::clear() noexcept {
    files_.clear();
    last_ = 0;
}

int RegisteredFiles::place_of(std::uint64_t id) noexcept {
    if (files_.empty()) return none;
    if (files_[last_].id == id) return files_[last_].place;
    const auto found = std::ranges::lower_bound(files_, id, std::less<>(), &Entry::id);
    if (found == files_.end() || found->id != id) return none;
    last_ = static_cast<std::size_t>(found - files_.begin());
    return files_[last_].place;
}

}  // namespace penstock::aio
