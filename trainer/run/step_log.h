// What is said of each step: a line on the console, and one in RUN/log.jsonl.
#pragma once

#include "trainer/cli/console.h"
#include "trainer/cli/step_record.h"
#include "trainer/run/opened_run.h"
#include "trainer/run/run_log.h"
#include "trainer/run/step_meter.h"

#include <chrono>
#include <optional>
#include <string>

namespace penstock::trainer {

// Compute thread. Run and console outlive it. Of several ranks rank 0's has the file.
class StepLog {
   public:
    // Cuts RUN/log.jsonl back to where the run goes on. Throws Error: usage, storage.
    StepLog(OpenedRun& run, Console& console);

    // While it lives a terminal shows the last step's line, and how long this one takes.
    LiveClock clock(std::int64_t step) const;
    // The step that has just ended, and what the session has noted meanwhile. Throws Error (storage) where the file
    // cannot be written.
    void add(const RunProgress& progress, const engine::StepReport& report, double seconds);

    // That step has been committed since, out of turn: its line says so, too, for the log is what a store that comes
    // from a backup is held against. Throws Error (storage).
    void was_settled(const RunProgress& progress);

    const StepTotals& totals() const noexcept { return meter_.totals(); }

   private:
    void restore_last();
    template <typename Write>
    void write(const RunProgress& progress, const Write& write) const;
    void show(const StepRecord& record);

    OpenedRun& run_;
    Console& console_;
    std::optional<RunLog> file_;
    StepMeter meter_;
    std::optional<StepRecord> last_;
    std::string live_;  // line of the last step, for a terminal
    std::chrono::steady_clock::time_point left_standing_ =
        std::chrono::steady_clock::now();  // when a live line last was
};

}  // namespace penstock::trainer
