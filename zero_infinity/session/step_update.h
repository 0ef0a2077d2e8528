// The update of one step: what it does to each tile, which parameters stay as they are, and in which order its units
// come.
#pragma once

#include "zero_infinity/plan/session_plan.h"
#include "zero_infinity/session/core_session.h"
#include "zero_infinity/session/session_parts.h"
#include "zero_infinity/session/skipped_steps.h"
#include "zero_infinity/session/step_pieces.h"
#include "zero_infinity/threads/job_thread.h"

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

// "the gradient of step N is not finite, first in WHERE; ..."
std::string non_finite_gradient(std::uint64_t step, const std::string& where);

// Compute thread. What it is given outlives it.
//
// Where compute reads weights in memory of its device, units whose own are resident in host memory are updated beside
// compute: on a thread of their own, in the order in which they are handed out, which returns at once. One that is
// updated within a pass is handed out when it is complete there; of an update that has its gradients all are as it
// begins, where all of it goes beside compute: else each would be waited for at the first unit that does not. Until
// take_in() that thread has the workers, and of those units the weights, states and gradients in host memory. What
// fails there fails the driver: every wait ends, and the next call throws it.
class StepUpdate {
   public:
    StepUpdate(const SessionPlan& plan, SessionWork& work, SkippedSteps& skipped_steps);

    // Whether it can be made, of gradients that are all there. Throws Error: usage; nothing has changed.
    void check(const UpdateRequest& request);
    void check(std::span<const GroupValues> groups) const;  // those alone
    // No gradient came to the unit, and all of it is Unused::skipped: an update would change nothing.
    bool stays(std::uint32_t unit) const;
    // Takes the gradients, of that norm. These units are updated from then on, each once; all others stay.
    void begin(const UpdateRequest& request, double gradient_norm, const std::vector<std::uint32_t>& units);
    // The same before there are gradients, which each unit takes when it is updated, as if nothing were clipped.
    // REQUIRES: the groups were checked.
    void begin_within(const UpdateRequest& request);
    // What is to be clipped is known: units that are updated from now on are clipped. True: those that were must be
    // updated again. Throws Error: non_finite, of one of those.
    bool clip(const UpdateRequest& request, double gradient_norm);
    // After clip(): these units take the gradients, and are updated as after begin(); those `again` which were updated
    // within, and are what they were before. Throws Error: usage (a missing gradient).
    void leave(const std::vector<std::uint32_t>& units, const std::vector<std::uint32_t>& again);
    // The driver has begun to bring tiles of these units.
    void begun(const std::vector<std::uint32_t>& units);
    // All tiles of one unit; of one that was handed out as the update began: waits until it is updated. Throws Error:
    // non_finite (a new value, with unit and parameter; a gradient that nobody has looked at), storage; usage (a
    // missing gradient that nobody has looked for).
    void update(std::uint32_t unit);
    bool wait_for(std::span<const std::uint32_t> units);  // those of them that were handed out; false: none was
    void take_in();    // waits for all that were, and ends those that no update() comes for any more
    void end_taken();  // those alone
    void end();        // of all its units

   private:
    // A unit that is updated beside compute, until update() or take_in() has ended it.
    struct HandedOut {
        UnitInHand hand;
        TileUpdate tiles;
        std::optional<Ticket> gradients;  // within a pass: when they are in host memory
        JobThread::Number job = 0;
        bool ahead = false;  // of its update()
    };
    bool stays(ParameterId parameter) const;
    void take_gradients(std::uint32_t unit);
    void expect_gradients(std::uint32_t unit);
    std::string update_tiles(UnitInHand& hand, const TileUpdate& tiles) const;
    bool goes_beside(std::uint32_t unit) const;
    void hand_out(std::uint32_t unit, bool ahead);
    void update_beside(HandedOut& unit);
    void end_beside(std::uint32_t unit);
    void set_values(const UpdateRequest& request, double scale);
    void note_skipped(std::uint32_t unit);
    std::string name_of_first();
    std::string refusal(std::uint32_t unit, std::uint64_t element, std::uint64_t step) const;

    // Constant after construction.
    const SessionPlan& plan_;
    SessionWork& work_;
    SkippedSteps& skipped_steps_;

    // Of the step under way: its values, and what came of it so far.
    StepPieces pieces_;
    TileUpdate tiles_;                  // of each tile, but for its pieces
    std::vector<GroupValues> groups_;   // that the pieces point at
    std::vector<ParameterId> skipped_;  // they stay as they are
    bool within_ = false;               // begun before its gradients
    bool speculative_ = false;          // as if nothing were clipped, and nobody knows yet
    std::string bad_value_;             // that it found then

    // Beside compute.
    std::map<std::uint32_t, HandedOut> handed_out_;  // by unit
};

}  // namespace penstock::zero
