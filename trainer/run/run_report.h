// The end of a call of `penstock train`: summary and sample, said, saved and given to the caller.
#pragma once

#include "trainer/run/opened_run.h"
#include "trainer/run/run_state.h"
#include "trainer/run/step_meter.h"
#include "trainer/run/summary.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace penstock::trainer {

class Console;

// Compute thread. Run and console outlive it. One of conclude() and recall() is called, once.
class RunReport {
   public:
    // `planned_step_seconds`: where it was forecast. `sample_wanted`: asked after each token of the sample.
    RunReport(OpenedRun& run, Console& console, std::optional<double> planned_step_seconds,
              std::function<bool()> sample_wanted)
        : run_(run), console_(console), sample_wanted_(std::move(sample_wanted)) {
        summary_.planned_step_seconds = planned_step_seconds;
    }

    // Says and gives the summary, with a sample when the run is finished and as long as one is wanted, and saves it in
    // RUN/summary.json. Where that fails it says so, and saved() is false.
    const Summary& conclude(const RunProgress& progress, const StepTotals& totals);
    // Of a run that was finished when it was opened: says so, and repeats the sample. Steps, times and traffic are of
    // this call: none. RUN/summary.json stays what the call that finished the run has written.
    const Summary& recall(const RunProgress& progress);
    bool saved() const noexcept { return !unsaved_; }

   private:
    bool finished(const RunProgress& progress) const { return progress.state.step >= run_.config().steps; }
    void fill(const RunProgress& progress, const StepTotals& totals);
    void save(const RunProgress& progress);
    void write_sample_text();
    void say();

    OpenedRun& run_;
    Console& console_;
    const std::function<bool()> sample_wanted_;
    Summary summary_;
    std::optional<std::string> unsaved_;  // why RUN/summary.json could not be written
};

}  // namespace penstock::trainer
