// Which parts of a range are free.
#pragma once

#include <cstddef>
#include <vector>

namespace penstock::pool {

// First fit over free ranges that are kept in the order of their addresses; neighbours are merged when one comes back,
// so two free ranges never touch. Bytes and offsets are multiples of granule_bytes. Knows no memory. One thread.
class FreeRanges {
   public:
    explicit FreeRanges(std::size_t bytes);

    // Room for what `taken` ranges can leave free, so that give_back never allocates. REQUIRES: called before the
    // take that makes them so many.
    void reserve(std::size_t taken);
    bool fits(std::size_t bytes) const noexcept;  // one free range is long enough
    // The offset of the first that is. REQUIRES: fits(bytes); bytes > 0.
    std::size_t take(std::size_t bytes) noexcept;
    // REQUIRES: no byte of it is free.
    void give_back(std::size_t begin, std::size_t bytes) noexcept;

    std::size_t longest() const noexcept;

   private:
    struct Range {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    const std::size_t bytes_;
    std::vector<Range> ranges_;
};

}  // namespace penstock::pool
