// The gradient sums of one step: what comes is added, counted for the norm, and lent to updates. The door to the nouns
// of this room: who has the sums (GradientLedger), where they lie (HostSums, DeviceGradients, of several ranks
// ShardSums), and their norm (GradientNorm).
#pragma once

#include "aio/io.h"
#include "pinned_pool/pinned_pool.h"
#include "zero_infinity/device/device.h"
#include "zero_infinity/gradients/device_gradients.h"
#include "zero_infinity/gradients/gradient_ledger.h"
#include "zero_infinity/gradients/gradient_norm.h"
#include "zero_infinity/gradients/host_sums.h"
#include "zero_infinity/gradients/shard_sums.h"
#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/optimizer/gradient.h"
#include "zero_infinity/order/closing_order.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/ranks/communicator.h"
#include "zero_infinity/threads/job_thread.h"
#include "zero_infinity/threads/workers.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
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
    // Who sums squares while compute goes on; null: nobody. REQUIRES: GradientMemory::all_units, no lane.
    JobThread* beside = nullptr;
    bool lends_again = true;  // what lend() takes of one unit is written, too
    MoreMemoryLimit more;     // of GradientMemory::two_units (host_sums.h)
    Lane* lane = nullptr;     // to other ranks; null: what is summed here are the sums of all
};

// Compute thread only, but for what is said of take_lent(), and squares that are summed beside compute: that thread is
// at one unit's part of each member, which compute leaves alone meanwhile. Addends come from the client, in its order;
// a device with memory of its own sums them there. GradientMemory::one_unit: units share memory, which a unit has from
// its first gradient until give_back(); calls that want more of them at once are refused by a check.
// GradientMemory::nvme: what a call needs is read, which blocks; a unit's sums are written once another unit's are
// added to. GradientMemory::two_units: what a rank has summed of a unit goes to the sums of all ranks while the pass
// goes on.
//
// A unit's whole range is summed, its shard is normed and lent: the same elements with one rank. With more, reduce()
// adds what the ranks have summed, and each has its shard of that; every rank makes the same calls then.
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
    bool leaves(std::uint32_t unit) const noexcept { return host_.leaves(unit); }
    // By number of tile, where an update reads gradients from; empty: all are in host memory.
    std::vector<std::optional<store::SpillBlock>> blocks() const { return host_.blocks(); }

    // Where compute adds to a sum, until another unit's is opened or host memory is looked at. `fresh`: it holds
    // nothing yet and is to be written whole; from now on it counts as there. REQUIRES: the parameter is trainable; no
    // other unit has the memory.
    struct Open {
        std::byte* data = nullptr;
        std::uint64_t numel = 0;
        bool fresh = true;
    };
    Open open(ParameterId parameter);
    // A pass has ended. From the first addend to another unit, or from here, what has come to one is on its way to host
    // memory of its own, and its squares are summed there, while compute goes on; once a pass, and in vain where more
    // comes to it behind that.
    void end_pass();
    bool is_fresh(ParameterId parameter) const {
        return !ledger_.has(parameter);
    }  // after norm(), lay_out(): of all ranks
    // Adds elements in host memory: float(sum) + float(addend), rounded once to the sum's type, nearest even; the first
    // one is rounded alone. REQUIRES: as many as the parameter has; the device shares host memory.
    void add(ParameterId parameter, const GradientView& addend);
    void clear();
    void clear(ParameterId parameter);  // REQUIRES: its unit was not lent by itself in this step

    // All below look at host memory: what the device summed is waited for.

    struct Sum {
        std::byte* data = nullptr;
        std::uint64_t numel = 0;
    };
    Sum sum(ParameterId parameter);  // REQUIRES: not fresh, nor of a unit that leaves or gave its memory back
    // sum(), of zeros where it is fresh: it counts as there. REQUIRES: as there, but for that.
    Sum make(ParameterId parameter);
    // No gradient comes to this unit for now: where its sums leave, they do so now.
    void let_leave(std::uint32_t unit);
    // Adds the sums of borrowed parameters to their owners', in the order of the units that borrow them, and clears
    // them; false: there were none.
    bool add_borrowed();

    // Of several ranks. What the sums here are to those of all: alike on all ranks, whatever came to which of them.
    enum class Reach : std::uint8_t {
        none,      // no addend came to any rank since clear() or lend()
        own,       // addends may have come: await_addends()
        all,       // reduce() came behind them
        laid_out,  // and each rank has them whole, where sum() gives them; each rank's changes there count in its shard
    };
    Reach reach() const noexcept { return reach_; }
    void await_addends() noexcept { reach_ = Reach::own; }  // a pass begins that brings some to any of them
    // Of GradientMemory::two_units. begin_closing(): from here to reduce() each addend may close units that come before
    // its own in this order, which is the same on all ranks, and they are averaged over the ranks.
    bool closes() const noexcept { return options_.memory == GradientMemory::two_units; }
    bool is_closing() const noexcept { return closing_.begun(); }
    std::vector<ClosingTurn> closing_behind(std::span<const Visit> visits) const { return closing_.behind(visits); }
    void begin_closing(std::span<const ClosingTurn> turns) { closing_.begin(turns); }
    // What each has summed since the last time is averaged over them, unit by unit, and new sums begin. REQUIRES:
    // add_borrowed() came after the last addend; is_closing(), where it closes().
    void reduce(Communicator& communicator);
    // The ranks hear what came to which of them. REQUIRES: the same, reduce() came behind the last addend, if any did.
    void lay_out(Communicator& communicator);
    // Of all ranks' gradients, where fresh ones are zero; defined order: gradient_norm.h. The ranks hear of each
    // other's commits with it. REQUIRES: add_borrowed() came after the last addend.
    double norm(Workers& workers, Communicator& communicator, CommitBarrier& commits);
    // An update takes the sums, but of units that were lent by themselves in this step: tile() gives them until
    // give_back(), while to all others they are fresh. REQUIRES: norm() came after the last addend; not
    // GradientMemory::one_unit. A unit's sums are added to again once they were given back.
    void lend();
    void give_back(std::uint32_t unit);
    // The same of one unit, before there is a norm: no addend comes any more in this step, also of who borrows from it,
    // and what was borrowed is added. False: its sum of squares is not finite. Until end_step() it takes no addend, is
    // not missing, and has its part in the norm.
    bool lend(std::uint32_t unit, Workers& workers);
    // lend() in two halves, for an update beside compute. begin_lend() returns at once, but where sums were borrowed:
    // what is on its way is there at the ticket. take_lent(), and with it tile() and first_non_finite() of that unit,
    // may be called by another thread, while this one adds to other units; false as there. REQUIRES: the sums stay in
    // host memory of the unit's own.
    Ticket begin_lend(std::uint32_t unit);
    bool take_lent(std::uint32_t unit, Ticket there, Workers& workers);
    // REQUIRES: lends_again; the unit was lent in this step by itself, and given back.
    void lend_again(std::uint32_t unit);
    void end_step();
    // Of the shard. REQUIRES: lent. `elsewhere`: where the update has its gradients from; null: the sums are here.
    GradientView tile(UnitTile tile, const std::byte* elsewhere = nullptr) const;
    // The first one with an element that is not finite, in unit order, of several ranks in this one's shard; nothing
    // when all are.
    std::optional<ParameterId> first_non_finite();
    std::optional<ParameterId> first_non_finite(std::uint32_t unit);  // of one unit
    std::string name_of(ParameterId parameter) const;                 // "unit NAME, parameter NAME"
    // "unit NAME, parameters A, B" of the first unit with trainable parameters that no gradient came to and that are
    // Unused::refused; nothing when there is none.
    std::optional<std::string> first_missing() const { return ledger_.first_missing(); }
    std::optional<std::string> missing(std::uint32_t unit) const { return ledger_.missing(unit); }  // of one unit

   private:
    // On a device with memory of its own.
    std::byte* on_device(std::uint32_t unit);
    void send_ahead();
    void forget_count(std::uint32_t unit);
    void forget_counts();
    void copy_out(std::uint32_t unit);
    void to_host(std::uint32_t unit);
    void all_to_host();

    // In host memory.
    std::byte* to_change(std::uint32_t unit);
    const std::byte* to_read(std::uint32_t unit);
    void write(std::uint32_t unit);
    bool awaits_borrowed(std::uint32_t owner) const { return ledger_.first_borrowed(owner).has_value(); }
    void add_to_owner(ParameterId borrowed);

    // Of several ranks.
    void to_own(std::uint32_t unit);  // an addend may come to it
    void add_over_ranks(std::uint32_t unit);
    void add_late(Communicator& communicator);
    void make_room(std::uint32_t unit);
    void make_whole(std::uint32_t unit);
    void empty_slots();
    void hear_what_came(Communicator& communicator);

    void count(std::uint32_t unit, Workers& workers);
    void count_in_place(std::uint32_t unit, Workers& workers);
    GradientView sum_of(ParameterId parameter);

    const ModelLayout* layout_;
    GradientSumsOptions options_;
    GradientLedger ledger_;
    HostSums host_;
    std::optional<ShardSums> shard_;  // of several ranks
    DeviceGradients device_;
    GradientNorm norm_;
    Reach reach_ = Reach::none;
    ClosingOrder closing_;
    std::optional<std::uint32_t> opened_;           // on a device, the last one
    std::vector<bool> sent_ahead_;                  // by unit, in this pass
    std::vector<JobThread::Number> counted_ahead_;  // by unit: who sums its squares as they are; 0: nobody
    std::deque<std::uint32_t> leaving_;             // in slots, on their way to the sums of all ranks
};

}  // namespace penstock::zero
