// The rounds of `penstock bench swap --null` and what they come to.
#pragma once

#include "bench/harness/report.h"
#include "bench/swap/null_rig.h"

namespace penstock::bench {

class Interruption;

struct NullBenchOptions {
    NullRigOptions rig;
    unsigned rounds = 5;
    double seconds = 2;  // of one figure in one round
};

// Measures all there is and adds facts, figures and notes. Throws Error as NullRig does, and when it is interrupted.
void run_null_bench(const NullBenchOptions& options, Interruption& stop, Report& report);

}  // namespace penstock::bench
