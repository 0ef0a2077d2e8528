// `penstock train`: one training run from configuration to summary.
#pragma once

#include "aio/words/error.h"
#include "trainer/run/summary.h"
#include "trainer/trace/step_trace.h"

#include <string>
#include <vector>

namespace penstock::trainer {

class Console;
class RunRanks;
class StopSignals;

struct TrainRequest {
    std::string config_file;
    std::vector<std::string> overrides;  // "key=value"
    std::string resume_from;             // a snapshot's name, step or path; empty: the store's newest commit
    bool plan = false;                   // measures and says first how long a step will take
    bool go_back = false;                // gives up steps that were committed: see OpenedRun
    std::vector<std::string> change;     // keys that may differ from the run's before
    TraceRequest trace;
};

struct TrainOutcome {
    ExitCode code = ExitCode::ok;  // or interrupted, or storage: RUN/summary.json could not be written
    int signal = 0;                // not 0: this signal stopped a scratch run, which cannot be resumed
    Summary summary;
};

// Starts the run, or resumes it at its last committed step; returns at the last step or when a signal asked to stop.
// Says all that people read on the console, the summary included. Of several ranks all call it, and stop behind the
// same step. Throws Error and what torch throws (see failure.h).
TrainOutcome train(const TrainRequest& request, RunRanks& ranks, Console& console, StopSignals& signals);

}  // namespace penstock::trainer
