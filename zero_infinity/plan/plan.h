// Decisions about weights: what is read when, into which part of the window, and until when it stays. Pure: no I/O,
// clock, thread or torch; policies are tested as data structures.
//
// Compute makes the same visits in every pass (forward 0..L-1, backward L-1..0), so prefetch is planned, not guessed,
// and every fetch has its place in memory beforehand: no allocation, no fragmentation, no eviction at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// Bytes that are fetched and dropped together: the weights of one unit.
struct GroupSpec {
    std::string name;
    std::uint64_t bytes = 0;  // its place in the window is rounded up to granules; 0: resident elsewhere, never fetched
};

// One stay of compute at a unit: the groups it needs in memory at the same time (its own and the ones it is tied to).
struct Visit {
    std::vector<std::uint32_t> groups;
};

// One fetch of a group: wanted by visits [first_visit, last_visit], may start once compute has come to visit
// `allowed_from`, and lies at `offset_bytes` of the window from then until compute has left last_visit.
struct Fetch {
    std::uint32_t group = 0;
    std::uint32_t first_visit = 0;
    std::uint32_t last_visit = 0;
    std::uint32_t allowed_from = 0;
    std::uint64_t offset_bytes = 0;  // a multiple of granule_bytes
    std::uint64_t bytes = 0;         // of the group
};

// The static part: which fetches a pass makes. A group whose next visit is near enough to be fetched again at once
// when it would be dropped is retained instead (the turn from forward to backward). Offsets: see placement.h.
//
// Example: units of equal bytes b, one per visit, depth d: the window is (d + 1) b, and the last 1 + d/2 units are
// retained at the turn.
class WeightSchedule {
   public:
    // `depth`: how many visits ahead of compute a fetch may start (0: only when compute is there).
    // REQUIRES: group indices are valid, no group twice in one visit.
    WeightSchedule(std::vector<GroupSpec> groups, std::vector<Visit> visits, std::uint32_t depth);

    // The deepest schedule up to `depth` whose window fits `window_bytes`. Throws Error (does_not_fit) naming the
    // visit that needs most and how much is missing, when even depth 0 does not fit.
    static WeightSchedule fitting(std::vector<GroupSpec> groups, std::vector<Visit> visits, std::uint32_t depth,
                                  std::uint64_t window_bytes);

    std::uint32_t depth() const noexcept { return depth_; }
    std::uint64_t window_bytes() const noexcept { return window_bytes_; }
    std::span<const Fetch> fetches() const noexcept { return fetches_; }  // in the order they are to be made
    // Indices of the fetches that serve a visit, in the order of its groups; groups that are resident elsewhere left
    // out.
    std::span<const std::uint32_t> fetches_of(std::uint32_t visit) const { return fetches_of_.at(visit); }
    // The fetch that serves the group in that visit. REQUIRES: the visit has the group, and it is not resident
    // elsewhere.
    const Fetch& holder(std::uint32_t visit, std::uint32_t group) const;
    std::span<const Visit> visits() const noexcept { return visits_; }
    const std::vector<GroupSpec>& groups() const noexcept { return groups_; }
    std::uint64_t fetched_bytes() const noexcept;   // per pass
    std::uint64_t retained_bytes() const noexcept;  // per pass: not fetched again because the group was retained

   private:
    std::vector<GroupSpec> groups_;
    std::vector<Visit> visits_;
    std::uint32_t depth_;
    std::vector<Fetch> fetches_;
    std::vector<std::vector<std::uint32_t>> fetches_of_;  // per visit
    std::uint64_t window_bytes_ = 0;
};

// The moving part: where one pass is. Driven by events; answers what to do next.
//   next() → start reading that fetch; arrived(fetch); compute asks ready(visit), then used(visit).
// Not thread-safe: the driver asks and tells it from one thread, or under one lock.
class WeightPlan {
   public:
    explicit WeightPlan(const WeightSchedule& schedule);  // the schedule outlives the plan; a first pass has begun

    enum class FetchState : std::uint8_t {
        waiting,   // no memory
        fetching,  // its place in the window is being written
        present,   // readable
        dropped,   // its place may be given to another
    };

    void begin();                           // a new pass, all memory free. REQUIRES: no fetch is under way
    const Fetch* next();                    // to be started now, marked as fetching; null: nothing at present
    void arrived(const Fetch& fetch);       // REQUIRES: fetching
    bool ready(std::uint32_t visit) const;  // all groups of the visit are present or resident elsewhere
    // Compute has left the visit and no longer reads its weights. Returns the indices of the fetches that are dropped
    // by it, valid until the next call. REQUIRES: visit == cursor(), ready(visit).
    std::span<const std::uint32_t> used(std::uint32_t visit);
    const WeightSchedule& schedule() const noexcept { return *schedule_; }
    std::uint32_t cursor() const noexcept { return cursor_; }  // the visit that compute is at or waits for
    FetchState state(std::uint32_t fetch) const { return states_.at(fetch); }
    bool finished() const noexcept;

   private:
    const WeightSchedule* schedule_;
    std::vector<FetchState> states_;
    std::vector<std::uint32_t> dropped_;
    std::uint32_t cursor_ = 0;
    std::uint32_t next_fetch_ = 0;
};

// The visits of a pass and when their groups are fetched, for both places that weights pass through. Groups are units.
struct PassSchedules {
    WeightSchedule host;                   // window in host memory; groups resident there have 0 bytes
    std::optional<WeightSchedule> device;  // window in the device's memory, no deeper than host; none: it has none
};

}  // namespace penstock::zero
