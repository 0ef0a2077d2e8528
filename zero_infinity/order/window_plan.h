// Decisions about weights: what is fetched when, to which place of a window, and what makes room for it. Pure: no I/O,
// clock, thread or torch; policies are tested as data structures and simulated before a run.
//
// Compute says where it goes (a visit) and what it is expected to visit next. The plan fetches ahead in that order and
// gives up first what is used last: Belady's rule (1966), which fetches least for units of one size, and is a heuristic
// for others. An expectation that turns out wrong costs a fetch that compute waits for, and nothing else. No decision
// depends on when bytes arrive: the same visits and expectations always fetch the same bytes to the same places.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// The weights of one unit, which are fetched and given up together.
struct UnitBytes {
    std::string name;
    std::uint64_t bytes = 0;       // gathered: its place in the window is rounded up to granules; 0: never fetched
    std::uint64_t read_bytes = 0;  // from NVMe by a fetch of it: of the shard; 0: host memory has it
};

// One stay of compute: the units whose weights it needs in memory at the same time.
struct Visit {
    std::vector<std::uint32_t> units;
    bool operator==(const Visit&) const = default;
};

// To be made after all earlier ones of the same unit or to overlapping places have ended.
struct Fetch {
    std::uint64_t number = 0;  // counts from 1
    std::uint32_t unit = 0;
    std::uint64_t offset_bytes = 0;  // a multiple of granule_bytes
    std::uint64_t bytes = 0;         // of the unit, gathered
    bool awaited = false;            // by the visit that asked for it: compute stands still until it is there
};

// Who works on what was fetched.
enum class FetchUse : std::uint8_t {
    compute,   // reads it
    update,    // changes it where it lies in host memory, from where it is written
    both,      // it is updated, then compute reads it
    in_place,  // as update, of what compute has read at that place: nothing is read from NVMe
};

// The units in a window of fixed bytes. Not thread-safe; one owner.
//
// Example: units of equal bytes b, one per visit, depth d, a window of (d + 1) b: compute at visit v has v … v + d in
// memory or on their way, and at the turn from forward to backward the last d + 1 units are not fetched again.
class WindowPlan {
   public:
    // `depth`: how many visits ahead of compute a fetch may be made (0: only when compute is there). REQUIRES:
    // window_bytes is a multiple of granule_bytes.
    WindowPlan(std::vector<UnitBytes> units, std::uint64_t window_bytes, std::uint32_t depth);

    // Compute goes to `visit`, reads on at units that it names in `held` where they lie, and is expected to make the
    // visits `ahead` after it. All others may be given up or moved; no room is refused that all units of the visit have
    // in the window beside the held ones. An empty visit is one to nowhere: fetches for what is ahead. Returns the
    // fetches to be made, in order, valid until the next call. Throws Error (does_not_fit) naming the units; nothing
    // has changed then. REQUIRES: indices are valid, no unit twice in one visit, held ones are in it and in the window.
    std::span<const Fetch> visit(const Visit& visit, std::span<const Visit> ahead,
                                 std::span<const std::uint32_t> held = {});
    void end_visit();  // compute is nowhere: everything may be given up, and stays until its place is wanted
    void forget();     // the window holds nothing of use (the weights were updated). REQUIRES: compute is nowhere
    void forget(std::uint32_t unit);  // the same of one, which compute has left

    // Where the unit lies, or will lie once `fetch` has ended; nothing when the window does not have it.
    struct Place {
        std::uint64_t offset_bytes = 0;
        std::uint64_t fetch = 0;
    };
    std::optional<Place> place(std::uint32_t unit) const;

    const std::vector<UnitBytes>& units() const noexcept { return units_; }
    std::uint64_t window_bytes() const noexcept { return window_bytes_; }
    std::uint32_t depth() const noexcept { return depth_; }
    std::uint64_t fetched_bytes() const noexcept { return fetched_bytes_; }  // since construction, NVMe's

   private:
    struct Held {
        std::uint32_t unit = 0;
        std::uint64_t offset_bytes = 0;
        std::uint64_t bytes = 0;  // whole granules
        std::uint64_t fetch = 0;
        std::uint64_t next_use = 0;  // visits from now; 0: in use, `never` when none is expected
    };
    struct Gap;

    void set_next_uses(const Visit& visit, std::span<const Visit> ahead);
    bool has(std::uint32_t unit) const noexcept;
    std::optional<Gap> cheapest_gap(std::uint64_t bytes, std::uint64_t needed_in) const;
    bool fetch(std::uint32_t unit, std::uint64_t needed_in);
    bool fetch_awaited(const Visit& visit, std::span<const std::uint32_t> held);

    std::vector<UnitBytes> units_;
    std::uint64_t window_bytes_;
    std::uint32_t depth_;
    std::vector<Held> content_;  // in the order of offsets
    std::vector<Fetch> fetches_;
    std::uint64_t last_number_ = 0;
    std::uint64_t fetched_bytes_ = 0;
};

// What passes need of a window, found by making all their visits.
struct WindowUse {
    std::uint64_t window_bytes = 0;
    std::uint32_t depth = 0;
    std::uint64_t fetched_bytes = 0;  // from NVMe by the first of the passes, from an empty window
    std::uint64_t again_bytes = 0;    // by the same pass right behind it
};
using PassVisits = std::vector<Visit>;

// The least window in which each visit of each pass, from an empty window, finds room together with what is to be
// fetched ahead of it. REQUIRES: as WindowPlan::visit(); at least one pass.
WindowUse least_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, std::uint32_t depth);
// The deepest one of up to `depth` that fits. Throws Error (does_not_fit) naming the visit that needs most and how much
// is missing, when even depth 0 does not fit.
WindowUse fitting_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, std::uint32_t depth,
                         std::uint64_t window_bytes);
// The same, with as much of `window_bytes` as all units take: what stays is not fetched again.
WindowUse widened_window(const std::vector<UnitBytes>& units, std::span<const PassVisits> passes, const WindowUse& use,
                         std::uint64_t window_bytes);

}  // namespace penstock::zero
