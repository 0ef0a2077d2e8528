// What a program asked of a pool, in order: recorded in one run, replayed by `penstock bench pool`.
//
//   penstock pool trace 1          the format's version
//   # any comment
//   budget 100663296               limit in bytes
//   use 25165824 staging           bytes and name (no control characters), numbered from 0 in this order
//   g 0 3000000 17                 granted: use, requested bytes, an id that no lease out has
//   x 0 90000000                   refused: use, requested bytes
//   d 17                           the lease is gone, a transfer or a copy still claims its memory (parked)
//   r 17                           returned: the last claim is gone
//   lost 3                         events that the recorder had no room for, at the end
#pragma once

#include "pinned_pool/pinned_pool.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

inline constexpr std::size_t max_trace_events = 4'000'000;  // 128 MB in memory; a longer text is refused

struct PoolEvent {
    enum class Kind : std::uint8_t { granted, refused, dropped, returned };
    Kind kind = Kind::granted;
    std::uint32_t use = 0;    // of granted, refused: index into PoolTrace::uses
    std::uint64_t bytes = 0;  // the same: as requested
    std::uint64_t id = 0;     // of all but refused

    bool operator==(const PoolEvent&) const = default;
};

// A value.
struct PoolTrace {
    std::uint64_t budget_bytes = 0;
    std::vector<Use> uses;
    std::vector<PoolEvent> events;  // an id is granted once before it is dropped (at most once) and returned
    std::uint64_t lost_events = 0;
};

void write_pool_trace(std::ostream& out, const PoolTrace& trace);
// Throws Error (usage) naming `path` and the line for what is no trace, or one that contradicts itself.
PoolTrace parse_pool_trace(std::istream& in, const std::string& path);
PoolTrace load_pool_trace(const std::string& path);                     // the same, and for a file that cannot be read
void save_pool_trace(const std::string& path, const PoolTrace& trace);  // throws Error (storage)

// Records a trace into memory that it took at construction: no lock, no allocation. What is beyond its room is counted,
// not kept. Does not see the moment at which memory is parked: it records no `dropped`.
class PoolRecorder final : public PoolObserver {
   public:
    explicit PoolRecorder(std::size_t max_events) : slots_(max_events) {}

    void granted(std::string_view use, std::size_t requested_bytes, const std::byte* data) noexcept override;
    void refused(std::string_view use, std::size_t requested_bytes) noexcept override;
    void returned(std::string_view use, const std::byte* data) noexcept override;

    // What was recorded so far, for the pool of that budget. Any thread, while that pool lives: its names are used.
    PoolTrace trace(const Budget& budget) const;

   private:
    struct Slot {
        std::atomic<bool> complete{false};
        PoolEvent::Kind kind = PoolEvent::Kind::granted;
        std::string_view use;  // the pool's
        std::uint64_t bytes = 0;
        const std::byte* data = nullptr;
    };
    void record(PoolEvent::Kind kind, std::string_view use, std::uint64_t bytes, const std::byte* data) noexcept;

    std::vector<Slot> slots_;
    std::atomic<std::uint64_t> next_{0};
};

}  // namespace penstock
