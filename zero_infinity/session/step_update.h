// The update of one step: what it does to each tile, which parameters stay as they are, and in which order its units
// come.
#pragma once

#include "zero_infinity/session/core_session.h"
#include "zero_infinity/session/session_parts.h"
#include "zero_infinity/session/session_plan.h"
#include "zero_infinity/session/skipped_steps.h"
#include "zero_infinity/session/step_pieces.h"

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::zero {

// Compute thread. What it is given outlives it.
class StepUpdate {
   public:
    StepUpdate(const SessionPlan& plan, SessionWork& work, SkippedSteps& skipped_steps);

    // Whether it can be made. Throws Error: usage; nothing has changed.
    void check(const UpdateRequest& request);
    // Takes the gradients, of that norm. Its units are updated from then on, each once.
    void begin(const UpdateRequest& request, double gradient_norm);
    // All units with something to train: first those that clients read at any time, then as compute is expected to
    // visit them.
    std::vector<std::uint32_t> order(std::span<const Visit> expected) const;
    // All tiles of one unit. Throws Error: non_finite (a new value, with unit and parameter), storage.
    void update(std::uint32_t unit);
    void end();  // of all its units

   private:
    bool stays(ParameterId parameter) const;
    void refuse(std::uint32_t unit, std::uint64_t element) const;

    const SessionPlan& plan_;
    SessionWork& work_;
    SkippedSteps& skipped_steps_;
    StepPieces pieces_;
    TileUpdate tiles_;
    std::vector<GroupValues> groups_;   // that the pieces point at
    std::vector<ParameterId> skipped_;  // they stay as they are
};

}  // namespace penstock::zero
