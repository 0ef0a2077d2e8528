// One use's range of the arena and which parts of it are free.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace penstock {

// Bytes granted now and at most so far. Any thread.
class Gauge {
   public:
    void add(std::uint64_t bytes) noexcept;
    void subtract(std::uint64_t bytes) noexcept { now_.fetch_sub(bytes, std::memory_order_relaxed); }
    std::uint64_t now() const noexcept { return now_.load(std::memory_order_relaxed); }
    std::uint64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }

   private:
    std::atomic<std::uint64_t> now_{0};
    std::atomic<std::uint64_t> peak_{0};
};

// First fit over free ranges that are kept in the order of their addresses; neighbours are merged when one comes back,
// so two free ranges never touch. Bytes are multiples of granule_bytes. Any thread.
class UseArena {
   public:
    // The memory is the caller's and outlives the arena; `pool` gathers over all uses.
    UseArena(std::string name, std::byte* data, std::size_t bytes, Gauge& pool);

    std::byte* take(std::size_t bytes);  // null when no free range is long enough
    void give_back(std::byte* data, std::size_t bytes) noexcept;

    const std::string& name() const noexcept { return name_; }
    std::size_t bytes() const noexcept { return bytes_; }
    std::size_t longest_free_bytes() const;
    const Gauge& gauge() const noexcept { return gauge_; }

   private:
    struct Range {
        std::size_t begin = 0;
        std::size_t end = 0;
    };

    const std::string name_;
    std::byte* const data_;
    const std::size_t bytes_;
    Gauge& pool_;
    Gauge gauge_;

    mutable std::mutex mutex_;
    std::size_t leases_ = 0;   // mutex_
    std::vector<Range> free_;  // mutex_; room for leases_ + 1 ranges, so that giving back never allocates
};

}  // namespace penstock
