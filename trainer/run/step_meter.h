// From the counters of a session to a record of each step, and what the steps of this process have taken together.
#pragma once

#include "trainer/cli/step_record.h"
#include "trainer/config/config.h"
#include "trainer/run/run_state.h"
#include "zero_infinity/engine/session.h"

#include <cstdint>
#include <vector>

namespace penstock::trainer {

// Of the steps of this process: initialisation, resume and sample are left out.
struct StepTotals {
    std::vector<double> seconds;  // one per step
    double seconds_total = 0;
    std::uint64_t read_bytes = 0;  // NVMe
    std::uint64_t write_bytes = 0;
    std::int64_t updated_again = 0;  // steps
};

// The configuration outlives it.
class StepMeter {
   public:
    // `counters`: of the session when the first step begins.
    StepMeter(const TrainConfig& config, const engine::SessionInfo& session, const engine::SessionCounters& counters)
        : config_(config), pool_budget_bytes_(session.pool_budget_bytes), counters_(counters) {}

    // Of the step that has just ended. REQUIRES: one call for each step.
    StepRecord measure(const RunProgress& progress, const engine::StepReport& report, double seconds,
                       const engine::SessionCounters& counters);

    const StepTotals& totals() const noexcept { return totals_; }

   private:
    const TrainConfig& config_;
    std::uint64_t pool_budget_bytes_;
    engine::SessionCounters counters_;  // at the end of the last step
    StepTotals totals_;
    double smooth_seconds_ = 0;
    double smooth_loss_ = 0;
};

}  // namespace penstock::trainer
