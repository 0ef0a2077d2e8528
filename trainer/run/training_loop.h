// The steps of a run, and how far it is.
#pragma once

#include "trainer/run/opened_run.h"
#include "trainer/run/run_state.h"
#include "zero_infinity/engine/engine.h"

#include <cstdint>
#include <optional>

namespace penstock::trainer {

// Compute thread. The run outlives it. After an exception it may only be destroyed.
class TrainingLoop {
   public:
    explicit TrainingLoop(OpenedRun& run) : run_(run), progress_(run.start()), committed_here_(run.start().committed) {}

    const RunProgress& progress() const noexcept { return progress_; }
    std::int64_t step() const noexcept { return progress_.state.step; }  // the newest finished one
    bool finished() const noexcept { return step() >= run_.config().steps; }

    // Computes one step, and commits it where run.commit_every says so. Throws Error: non_finite, storage; the last
    // committed step is safe.
    engine::StepReport next_step();

    // Commits the newest step out of turn when it is not committed yet, on all ranks. REQUIRES: the run is durable.
    void settle();
    // Somebody else has settled the session: a snapshot begins with the newest step.
    void was_settled() { progress_.committed = committed_here_ = step(); }

   private:
    void note_commits(const engine::StepReport& report);

    OpenedRun& run_;
    RunProgress progress_;
    // On this rank. That it is on all is known with the norm of a later step: until then a kill may undo it.
    std::optional<std::int64_t> committed_here_;
};

}  // namespace penstock::trainer
