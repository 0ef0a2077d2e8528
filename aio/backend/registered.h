// In which registered range or file an attempt lies. Pure; for a backend that has such things.
#pragma once

#include "aio/backend.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace penstock::aio {

// Places are numbered as they were given, which is how the kernel counts them. A lookup remembers its last hit, because
// the next attempt is likely to be beside it, and is a binary search otherwise.
class RegisteredRanges {
   public:
    static constexpr int none = -1;

    // REQUIRES: the ranges do not overlap; none is empty or longer than max_registered_bytes; max_registered at most.
    void set(std::span<const std::span<std::byte>> ranges);
    void clear() noexcept;
    bool empty() const noexcept { return ranges_.empty(); }
    // The place of the range that holds all of [data, data + bytes), or none.
    int place_of(const std::byte* data, std::uint32_t bytes) noexcept;

   private:
    struct Range {
        const std::byte* begin = nullptr;
        const std::byte* end = nullptr;
        int place = none;
        bool holds(const std::byte* data, std::uint32_t bytes) const noexcept;
    };
    std::vector<Range> ranges_;  // by address
    std::size_t last_ = 0;
};

class RegisteredFiles {
   public:
    static constexpr int none = -1;

    // REQUIRES: each is open and has an id of its own; max_registered at most.
    void set(std::span<const RegisteredFile> files);
    void clear() noexcept;
    bool empty() const noexcept { return files_.empty(); }
    // The place of the file with this id, or none.
    int place_of(std::uint64_t id) noexcept;

   private:
    struct Entry {
        std::uint64_t id = 0;
        int place = none;
    };
    std::vector<Entry> files_;  // by id
    std::size_t last_ = 0;
};

}  // namespace penstock::aio
