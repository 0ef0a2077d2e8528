// Gradients in host memory: one flat buffer per unit, in the order of its trainable range, plus one per borrowed
// parameter. What is added comes from the client, in its order; a device with memory of its own sums there.
#pragma once

#include "aio/io.h"
#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/gradients/spilled_sums.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/threads/workers.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

struct GradientSumsOptions {
    PlaneType type = PlaneType::fp32;
    GradientMemory memory = GradientMemory::all_units;
    std::uint64_t device_bytes = 0;                         // gradient_window_bytes(), or of all units
    std::chrono::seconds deadline = aio::default_deadline;  // of a copy
    // Of GradientMemory::nvme: who moves them, which is not called before the first gradient, and who sums their
    // squares.
    store::Spill* spill = nullptr;
    Driver* driver = nullptr;
    Workers* workers = nullptr;
    bool lends_again = true;  // what lend() takes of one unit is written, too
};

// The sums of one step. Compute thread only. GradientMemory::one_unit: units share memory, which a unit has from its
// first gradient until give_back(); calls that want more of them at once are refused by a check. GradientMemory::nvme:
// what a call needs is read, which blocks; a unit's sums are written once another unit's are added to. One rank holds
// whole units so far; with more, closing a unit becomes the reduce-scatter.
class GradientSums {
   public:
    // Everything outlives it, but for the driver, which ends before its memory. Takes its leases here, and reserves
    // room on disk; allocates no memory later. A copy to or from host memory that takes longer than the deadline is an
    // Error (internal).
    GradientSums(const ModelLayout& layout, const GradientSumsOptions& options, pool::PinnedPool& pool, Device& device);
    ~GradientSums();
    GradientSums(const GradientSums&) = delete;
    GradientSums& operator=(const GradientSums&) = delete;

    PlaneType type() const noexcept { return options_.type; }
    // Its sums have no place of their own in host memory.
    bool leaves(std::uint32_t unit) const noexcept { return spilled_ && spilled_->has(unit); }
    // By number of tile, where an update reads gradients from; empty: all are in host memory.
    std::vector<std::optional<store::SpillBlock>> blocks() const;

    // Where compute adds to a sum, until another unit's is opened or host memory is looked at. `fresh`: it holds
    // nothing yet and is to be written whole; from now on it counts as there. REQUIRES: the parameter is trainable; no
    // other unit has the memory.
    struct Open {
        std::byte* data = nullptr;
        std::uint64_t numel = 0;
        bool fresh = true;
    };
    Open open(ParameterId parameter);
    bool is_fresh(ParameterId parameter) const;
    // Adds elements in host memory: float(sum) + float(addend), rounded once to the sum's type, nearest even; the first
    // one is rounded alone. REQUIRES: as many as the parameter has; the device shares host memory.
    void add(ParameterId parameter, const GradientView& addend);
    void clear();
    void clear(ParameterId parameter);

    // All below look at host memory: what the device summed is waited for.

    struct Sum {
        std::byte* data = nullptr;
        std::uint64_t numel = 0;
    };
    Sum sum(ParameterId parameter);  // REQUIRES: not fresh, nor of a unit that leaves or gave its memory back
    // No gradient comes to this unit for now: where its sums leave, they do so now.
    void complete(std::uint32_t unit);
    // Adds the sums of borrowed parameters to their owners', in the order of the units that borrow them, and clears
    // them; false: there were none.
    bool add_borrowed();
    // Of all ranks' gradients, where fresh ones are zero: sums of tiles are added in the order of units, in each of
    // ranks, in each of tiles. REQUIRES: add_borrowed() came after the last addend.
    double norm(Workers& workers, Communicator& communicator);
    // An update takes the sums, but of units that were lent by themselves in this step: tile() gives them until
    // give_back(), while to all others they are fresh. REQUIRES: norm() came after the last addend; not
    // GradientMemory::one_unit. A unit's sums are added to again once they were given back.
    void lend();
    void give_back(std::uint32_t unit);
    // The same of one unit, before there is a norm: no addend comes any more in this step, also of who borrows from it,
    // and what was borrowed is added. False: its sum of squares is not finite. Until end_step() it takes no addend, is
    // not missing, and has its part in the norm.
    bool lend(std::uint32_t unit, Workers& workers);
    // REQUIRES: lends_again; the unit was lent in this step by itself, and given back.
    void lend_again(std::uint32_t unit);
    void end_step();
    // REQUIRES: lent. `elsewhere`: where the update has its gradients from; null: the sums are here.
    GradientView tile(UnitTile tile, const std::byte* elsewhere = nullptr) const;
    // "unit NAME, parameter NAME" of the first one with an element that is not finite, in unit order; nothing when all
    // are.
    std::optional<std::string> first_non_finite();
    // "unit NAME, parameters A, B" of the first unit with trainable parameters that no gradient came to and that are
    // Unused::refused; nothing when there is none.
    std::optional<std::string> first_missing() const;
    std::optional<std::string> missing(std::uint32_t unit) const;  // the same of one unit

   private:
    struct Range {  // where one parameter's gradient lies in its unit's memory
        std::uint64_t offset_bytes = 0;
        std::uint64_t numel = 0;
        bool trainable = false;
        bool fresh = true;
        ParameterId owner;  // of a borrowed one; itself otherwise
    };
    struct UnitSums {
        std::byte* memory = nullptr;  // own flat range, then the borrowed ones, each at a granule
        std::uint64_t bytes = 0;
        bool shared = false;        // that memory is holder_'s
        std::vector<Range> ranges;  // own, then borrowed, as ParameterId counts
        std::size_t own = 0;        // how many of them are own
        bool lent = false;
        bool counted = false;  // its squares are summed for this step
    };
    struct Window {  // memory of the device that a unit's gradients are summed in
        std::byte* data = nullptr;
        std::optional<std::uint32_t> unit;  // that is open in it
        Ticket copied;                      // until when the last unit's copy reads it
    };

    const Range& range(ParameterId parameter) const;
    Range& range(ParameterId parameter);
    void take_memory(pool::PinnedPool& pool);
    void take_shared(std::uint32_t unit);
    std::byte* memory_of(std::uint32_t unit) const;  // null: its sums are not there
    std::byte* take(std::uint32_t unit);             // the same, to be changed
    const std::byte* look(std::uint32_t unit);
    void settle(std::uint32_t unit);
    void sum_up(std::uint32_t unit, Workers& workers);
    void make_whole(std::uint32_t unit, Workers& workers);
    bool is_there(std::uint32_t unit) const noexcept { return !units_[unit].shared || holder_ == unit; }
    void make_windows();
    bool all_stay() const noexcept { return windows_.size() == units_.size(); }
    Window& window_of(std::uint32_t unit);
    Window& free_window(std::uint32_t unit);
    void close(Window& window);
    void copy_out(Window& window);
    void close_all();
    void compute_after(Ticket ticket) const;
    void wait_for(Ticket ticket) const;
    void add_borrowed(Range& borrowed, const UnitSums& unit);
    void add_borrowed_from(std::uint32_t owner);
    bool awaits_borrowed(std::uint32_t owner) const;
    void clear_gaps(std::uint32_t unit);
    void sum_squares(std::size_t first_tile, std::size_t count, Workers& workers);
    GradientView view(UnitTile tile) const;
    std::size_t place_of(std::size_t index) const;  // in the sums, of that tile of the layout

    const ModelLayout* layout_;
    GradientSumsOptions options_;
    Device* device_;
    std::vector<pool::Lease> leases_;
    std::vector<UnitSums> units_;
    std::optional<std::uint32_t> holder_;  // whose sums the shared memory has
    std::optional<SpilledSums> spilled_;   // of GradientMemory::nvme, where any leave
    std::optional<std::uint32_t> opened_;  // of them, the one that was changed last
    std::vector<Window> windows_;          // none, two, or one per unit
    Ticket last_out_;                      // the newest copy to host memory
    std::vector<double> sums_;             // one per tile of every rank, in the order in which they are added; own ones
    std::vector<double> all_sums_;         // of all ranks
    std::size_t turn_ = 0;                 // which window was opened last
    bool complete_ = false;                // host memory has all, and zero where nothing came
};

}  // namespace penstock::zero
