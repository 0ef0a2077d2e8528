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
#include <vector>

namespace penstock::trainer {

class Console;

// Compute thread. Run and console outlive it. One of conclude() and recall() is called, once. All ranks call it; rank 0
// has the report, of all of them, and the others wait for it.
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
    // Of this process, in the steps of this call.
    struct Figures {
        double planned_bytes = 0;  // a step
        std::uint64_t read_bytes = 0, write_bytes = 0;
        std::uint64_t pool_peak_bytes = 0, activation_peak_bytes = 0, rss_peak_bytes = 0;
    };
    // What rank 0 is at. The others would take a silent one for lost.
    enum class At : std::uint8_t { sample, end };

    void conclude_here(const RunProgress& progress, const StepTotals& totals);
    void recall_here(const RunProgress& progress);
    Figures own_figures(const StepTotals& totals) const;
    void gather_figures(const StepTotals& totals);
    bool tell(At at);
    const Summary& wait();
    bool finished(const RunProgress& progress) const { return progress.state.step >= run_.config().steps; }
    void fill(const RunProgress& progress, const StepTotals& totals);
    void fill_figures(const StepTotals& totals);
    void save(const RunProgress& progress);
    void write_sample_text();
    void say();

    OpenedRun& run_;
    Console& console_;
    const std::function<bool()> sample_wanted_;
    Summary summary_;
    std::vector<Figures> of_others_;
    At told_ = At::sample;                // by rank 0
    std::optional<std::string> unsaved_;  // why RUN/summary.json could not be written
};

}  // namespace penstock::trainer
