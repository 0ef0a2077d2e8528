// The rounds of `penstock bench step` and what they come to.
#pragma once

#include "bench/harness/report.h"
#include "bench/step/step_runs.h"

namespace penstock::bench {

class Interruption;

// Adds facts, figures and notes. Throws Error as StepRuns and DeviceRatesRig do.
void run_step_bench(const StepBenchOptions& options, Interruption& stop, Report& report);

}  // namespace penstock::bench
