// What is known of one finished step, and how it is shown: one line for people, one JSON object for machines.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace penstock::trainer {

struct StepRecord {
    std::int64_t step = 0;                  // counts from 1
    std::int64_t steps = 0;                 // in all
    std::int64_t time_s = 0;                // when it ended, since 1970
    std::optional<std::int64_t> committed;  // newest step that a kill cannot undo; nothing: none, the run is scratch
    bool updated_again = false;             // after a speculation that failed
    double loss = 0;
    double smooth_loss = 0;    // mean of about the last ten steps; the newest weigh most
    double gradient_norm = 0;  // before clipping
    double learning_rate = 0;
    std::int64_t tokens = 0;  // of this step
    double seconds = 0;       // of this step, the parts below included
    double forward_seconds = 0;
    double backward_seconds = 0;
    double update_seconds = 0;
    double commit_seconds = 0;
    double wait_weights_seconds = 0;  // compute waited for weights
    double wait_tiles_seconds = 0;    // the update waited for states
    double wait_commit_seconds = 0;   // for the last writes and the manifest
    double wait_spill_seconds = 0;    // for what left memory within the step
    std::uint64_t read_bytes = 0;     // NVMe, in this step
    std::uint64_t write_bytes = 0;
    std::uint64_t pool_peak_bytes = 0;  // since the start
    std::uint64_t pool_budget_bytes = 0;
    std::uint64_t activation_bytes =
        0;  // kept for backward in this step: outside of the pool, but under memory.activation_budget
    std::uint64_t away_bytes = 0;        // of them: went to NVMe and came back
    std::uint64_t peak_rss_bytes = 0;    // of the process, since the start
    double seconds_left = 0;             // to the last step, at the speed of the last ones

    double tokens_per_second() const noexcept { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
    double waited_seconds() const noexcept {
        return wait_weights_seconds + wait_tiles_seconds + wait_commit_seconds + wait_spill_seconds;
    }
    double waited_share() const noexcept { return seconds > 0 ? waited_seconds() / seconds : 0; }
};

std::string line_of(const StepRecord& record);  // for a file
// Of a terminal: as many fields as fit, in 79 columns the learning rate and the traffic among them.
std::string live_line_of(const StepRecord& record, std::size_t columns);
std::string json_of(const StepRecord& record);  // without line end
// Of a step whose record was lost: what its commit knows (step, committed, loss, norm, rate, tokens), marked
// "restored".
std::string json_of_restored(const StepRecord& record);

// "59 s", "4 min 05 s", "2 h 03 min"
std::string duration_text(double seconds);
// "12.3 MiB"
std::string mebibytes(std::uint64_t bytes);

}  // namespace penstock::trainer
