// One training run: everything that `penstock train` holds while it runs, built at the start, resumed or new.
#pragma once

#include "trainer/config/config.h"
#include "trainer/config/settings.h"
#include "trainer/data/batches.h"
#include "trainer/data/token_file.h"
#include "trainer/run/run_directory.h"
#include "trainer/run/run_log.h"
#include "trainer/run/run_state.h"
#include "trainer/run/snapshot_keeping.h"
#include "trainer/run/summary.h"
#include "zero_infinity/engine/session.h"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

class Console;

struct RunRequest {
    std::string resume_from;  // a snapshot (trainer/run/snapshot_keeping.h); empty: the store's newest commit
};

// Compute thread. After an exception it may only be destroyed.
class TrainingRun {
   public:
    // Checks the configuration and the data, opens the store, resumes or initialises, cuts the log back, says what it
    // found. Throws Error: usage (configuration, data, a key that must not change at resume), does_not_fit, storage.
    TrainingRun(Settings settings, Console& console, RunRequest request);

    bool finished() const noexcept { return state_.step >= config_.steps; }
    // Computes and logs one step, and commits it where run.commit_every says so. Throws Error: non_finite, storage; the
    // last committed step is safe.
    void next_step();

    // Begins to keep a snapshot of the step when one is due, or `asked` for by a signal.
    void keep_snapshot(bool asked);
    // Waits for the one that is being copied, as long as it is wanted.
    void finish_snapshot(const std::function<bool()>& wanted);

    // Commits the newest step out of turn when it is not committed yet; a scratch run says that nothing is kept.
    void settle();
    bool durable() const noexcept { return config_.durable(); }

    // Says and gives the summary, with a sample when the run is finished, and saves it in RUN/summary.json. Where that
    // fails it says so, and saved() is false.
    const Summary& conclude();
    // Of a run that was finished when it was opened: says so, and repeats the sample. Steps, times and traffic are of
    // this call: none. RUN/summary.json stays what the call that finished the run has written.
    const Summary& recall();
    bool saved() const noexcept { return !unsaved_; }

   private:
    std::unique_ptr<engine::Session> open_session();
    void accept(const store::ClientState& stored);
    void open_log();
    void say_start();
    StepRecord measure(const engine::StepReport& report, double seconds);
    void append_to_log(const StepRecord& record);
    void show(const StepRecord& record);
    void write_sample_text();
    void fill_summary();
    void save_summary();
    std::string with_committed(const std::string& problem) const;  // and what of the run is safe
    void say_summary();

    // Built in this order and destroyed in reverse.
    Console& console_;
    const RunRequest request_;
    TrainConfig config_;
    TokenFile data_;
    Batches batches_;
    unsigned threads_;
    RunDirectory directory_;
    std::optional<store::StoreUuid> origin_;  // of the snapshot that the run goes on from
    std::unique_ptr<engine::Session> session_;
    store::ClientState snapshot_;  // of the configuration
    RunState state_;
    std::optional<std::int64_t> committed_;  // the newest committed step; nothing in a new scratch run
    std::unique_ptr<RunLog> log_;
    SnapshotKeeping keeping_;

    Summary summary_;
    std::optional<std::string> unsaved_;  // why RUN/summary.json could not be written
    std::vector<double> step_seconds_;
    double smooth_seconds_ = 0;
    double smooth_loss_ = 0;
    std::string live_;  // line of the last step, for a terminal
    std::chrono::steady_clock::time_point left_standing_ =
        std::chrono::steady_clock::now();  // when a live line last was
    engine::SessionCounters counters_;     // at the end of the last step
};

}  // namespace penstock::trainer
