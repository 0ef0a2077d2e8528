// A ring in host memory that weights pass through on their way to a device with memory of its own.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace penstock::zero {

// Places that are given and, mostly, taken back in the same order. Not thread-safe.
class HostPassage {
   public:
    explicit HostPassage(std::uint64_t bytes) : bytes_(bytes) {}

    // Contiguous; nothing while there is no room. An empty ring gives all of it.
    std::optional<std::uint64_t> take(std::uint64_t bytes) {
        std::uint64_t offset = 0;
        if (!taken_.empty()) {
            const std::uint64_t head = taken_.front().offset_bytes;
            offset = taken_.back().offset_bytes + taken_.back().bytes;
            const bool wrapped = taken_.back().offset_bytes < head;
            if (!wrapped && bytes_ - offset < bytes) offset = 0;
            if (offset <= head && head - offset < bytes) return std::nullopt;
        } else if (bytes > bytes_) {
            return std::nullopt;
        }
        taken_.push_back({offset, bytes, false});
        return offset;
    }
    void give_back(std::uint64_t offset_bytes) {
        for (Taken& taken : taken_)
            if (taken.offset_bytes == offset_bytes) taken.free = true;
        while (!taken_.empty() && taken_.front().free) taken_.pop_front();
    }

   private:
    struct Taken {
        std::uint64_t offset_bytes = 0;
        std::uint64_t bytes = 0;
        bool free = false;  // but something before it is not
    };
    std::uint64_t bytes_;
    std::deque<Taken> taken_;
};

}  // namespace penstock::zero
