// When the units of a step are updated, and when the step is committed: one head for all orders of updates, and two
// pairs of hands, a session's that make the update and a forecast's that take its time. Decided from calls alone: no
// clock, and not whether I/O has ended. Whoever makes the same calls gets the same decisions, on every rank.
#pragma once

#include "zero_infinity/layout/model_layout.h"
#include "zero_infinity/order/update_order.h"
#include "zero_infinity/order/window_plan.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace penstock::zero {

// When units are updated that a pass visits.
enum class UpdateAt : std::uint8_t {
    arrival,    // before the visit computes: it reads the new weights
    departure,  // once the visit has computed: the next one that reads it gets the new weights
};

// The update that begins.
struct BegunUpdate {
    enum class Of : std::uint8_t {
        step,    // all of it, after its norm is known
        within,  // all that is not deferred, before there is a norm
        rest,    // what `within` has left: the deferred units, and those of `again`
    };
    Of of = Of::step;
    std::vector<std::uint32_t> units;  // in the order in which they will be updated
    std::vector<std::uint32_t> again;  // of them: they were updated within, as if nothing were clipped
    bool commits = false;              // the step, once the last of its units is updated
    UpdateAt at() const noexcept { return of == Of::within ? UpdateAt::departure : UpdateAt::arrival; }
};

// Carries it out. A call that throws ends the step order's use.
class StepHands {
   public:
    virtual std::span<const Visit> expected() const = 0;  // of the next training pass, or of the one under way
    virtual void begin(const BegunUpdate& update) = 0;    // returns at once; tiles begin to come
    virtual void update(std::uint32_t unit) = 0;          // all its tiles
    virtual void end_of_residents() = 0;                  // those that are resident have new weights
    virtual void end_of_step() = 0;                       // its last unit is updated
    virtual void begin_commit() = 0;                      // returns at once
    virtual void finish_commit() = 0;                     // blocks until it is durable
    virtual void finish_writes() = 0;                     // blocks until all that updates write is written
    virtual void undo(const std::vector<std::uint32_t>& units) = 0;  // they are as they were committed
    virtual void arrived(std::span<const std::uint32_t>) {}          // what was to be done before these compute is done

   protected:
    ~StepHands() = default;
};

// Puts somebody between a step order and its hands, who hears what it decides. Empty: nobody.
using StepWatch = std::function<StepHands&(StepHands&)>;
inline StepHands& watched(const StepWatch& watch, StepHands& hands) {
    return watch ? watch(hands) : hands;
}

// What becomes of a unit's gradient when the last addend has come to it.
enum class Departure : std::uint8_t {
    updated,  // it was used
    kept,     // in memory: the step's end uses it
    left,     // a later update uses it, until when it may leave memory
};

// What a step's end has left to do.
enum class Ended : std::uint8_t {
    whole,     // nothing: all its units are updated
    deferred,  // units that are updated in the next pass, or by finish()
    again,     // the same, for some were updated within and the step was clipped
};

struct StepRules {
    UpdateOrder order = UpdateOrder::after_backward;
    // Of UpdateOrder::within.
    std::vector<bool> deferred = {};  // by unit, whether every step leaves it to the next pass; empty: none
    bool undoes = false;              // what was committed before a step is whole until the step's commit
    bool defers_others = false;       // steps that are not updated within; else they are updated after backward
};

// So many steps that were clipped one after another, and the next one most likely is, too: to update it again would
// cost more than to defer it. One alone says little.
inline constexpr int a_run_of_clips = 2;

// One thread. The layout and the hands outlive it.
//
//   a step of order    begin()  pass: arrive() depart()      finish()  end()
//   after_backward                                                     updates all
//   deferred                    updates the step before      what no visit has updated
//   within                      (the same) updates           (the same) updates the residents, leaves the deferred
//
// A begun step updates within its pass from begin() on, where all of the step before is committed; else from the visit
// on of the unit that departs first, once no unit of the step before awaits its update: there a commit that is under
// way is waited for. What departs before that is left to the next pass, with its whole step.
class StepOrder {
   public:
    StepOrder(const ModelLayout& layout, StepRules rules, StepHands& hands);

    // Of the update under way.
    bool awaits(std::uint32_t unit) const noexcept { return awaiting_[unit]; }
    std::optional<std::uint32_t> next() const noexcept;  // the unit that awaits it first
    std::span<const std::uint32_t> units() const noexcept { return units_; }
    UpdateAt at() const noexcept { return at_; }
    // Its weights are of the step before, until its visit or finish().
    bool owes(std::uint32_t unit) const noexcept { return awaits(unit) && !updates_within(); }

    // Of the newest step.
    bool commits() const noexcept { return commits_; }  // once its last unit is updated
    bool committing() const noexcept { return committing_; }
    bool committed() const noexcept { return committed_; }  // all that there is of it

    // A step that is begun before its gradients: whether one may be, with clipping or without; whether it is worth it,
    // because it will most likely not be clipped; and whether one is.
    bool may_begin(bool clips) const noexcept;
    bool is_worth_beginning(bool clips) const noexcept {
        return may_begin(clips) && (!clips || clipped_in_a_row_ < a_run_of_clips);
    }
    void begin(bool commits);
    bool begun() const noexcept { return within_.has_value(); }
    bool updates_within() const noexcept { return within_ && within_->updates; }
    bool leaves(std::uint32_t unit) const noexcept { return rules_.deferred[unit]; }  // to the next pass

    // Within a training pass, or another one: compute has arrived at units, and has done with one for good.
    void arrive(std::span<const std::uint32_t> units);
    Departure depart(std::uint32_t unit);

    // Between passes. finish(): all that there is of the newest step, its updates, writes and commit; nothing where
    // units of a begun step are updated, to which not all gradients have come.
    void finish();
    // A step of which no unit could be updated within its pass is not begun any more. REQUIRES: finish() was called.
    void drop_idle() noexcept {
        if (!updates_within()) within_.reset();
    }
    // The gradients of a step are all there, and their norm is known. REQUIRES: finish() was called; that no step is
    // begun for end(), and updates_within() for end_begun(): see drop_idle().
    Ended end(bool commits, const std::vector<bool>& changed);  // by unit: an update would change it
    Ended end_begun(bool clipped);
    void note_clip(bool clipped) noexcept;           // of the step that is ended next
    void commit();                                   // of what is not committed
    void changed() noexcept { committed_ = false; }  // by somebody else than an update

   private:
    struct Within {
        bool commits = false;
        std::optional<std::uint32_t> first;  // unit to depart
        bool updates = false;                // its units: no unit of the step before awaits it
        std::vector<std::uint32_t> updated;  // by depart()
    };
    void begin_update(BegunUpdate update);
    std::vector<std::uint32_t> updated_within() const;
    void update_within();
    void update_unit(std::uint32_t unit);
    void update_residents();
    void update_all();
    void end_of_step();
    void begin_commit();
    bool defers() const noexcept;

    const ModelLayout& layout_;
    const StepRules rules_;
    StepHands& hands_;

    // The update under way.
    std::vector<std::uint32_t> units_;
    std::size_t first_ = 0;       // of them that awaits it
    std::vector<bool> awaiting_;  // by unit
    UpdateAt at_ = UpdateAt::arrival;
    bool commits_ = false;

    int clipped_in_a_row_ = a_run_of_clips;  // of the newest steps; a training begins as if in a run
    bool committing_ = false;
    bool committed_ = true;
    std::optional<Within> within_;  // from begin() to end_begun()
};

}  // namespace penstock::zero
