// The rounds of `penstock bench swap` and what they come to.
#pragma once

#include "bench/harness/report.h"
#include "bench/swap/swap_rig.h"

namespace penstock::bench {

struct SwapBenchOptions {
    SwapRigOptions rig;
    unsigned rounds = 5;
    double seconds = 2;  // of one side in one round, at least one pass
};

// The least of `values` that at least `share` of them do not exceed. REQUIRES: values, 0 < share <= 1.
double percentile(std::vector<double> values, double share);

// Measures all there is and adds facts, figures and notes. Throws Error as SwapRig does.
void run_swap_bench(const SwapBenchOptions& options, Interruption& stop, Report& report);

}  // namespace penstock::bench
