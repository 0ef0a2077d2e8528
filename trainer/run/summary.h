// What a run reports at its end: lines for people, one JSON object for machines, and RUN/summary.json for the next
// call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// Traffic and times are of the steps of this process: initialisation, resume and sample are left out.
struct Summary {
    std::int64_t steps = 0;      // finished in all
    std::int64_t steps_run = 0;  // of them by this process
    std::int64_t resumed_from_step = 0;
    std::optional<std::int64_t> committed;  // the newest committed step; nothing where a scratch run began anew
    std::uint64_t params = 0;
    std::uint64_t trainable_params = 0;
    std::optional<double> first_loss;  // of step 1; nothing when no process got to write it down
    std::optional<double> final_loss;  // of step `steps`
    std::int64_t tokens_per_step = 0;
    double step_seconds_total = 0;
    double step_seconds_p50 = 0;
    std::optional<double> planned_step_seconds;  // by `penstock train --plan`
    std::uint64_t nvme_read_bytes = 0;
    std::uint64_t nvme_write_bytes = 0;
    std::int64_t steps_updated_again = 0;     // after a speculation that failed
    double planned_bytes_per_param_step = 0;  // by this run's schedules and objects
    double formula_bytes_per_param_step = 0;  // by codec, order, durability and residency
    std::uint64_t pool_peak_bytes = 0;
    std::uint64_t pool_budget_bytes = 0;
    std::uint64_t activation_peak_bytes = 0;  // kept for backward: in the pool only under memory.activation_budget
    std::uint64_t peak_rss_bytes = 0;         // of the process
    std::int64_t ranks = 1;                   // with bytes of all, and peaks of the one that had most
    std::string checkpoint;                   // directory of the store
    std::string store;                        // its uuid: whose summary this is; empty in one of an older program
    std::string log;
    std::string sample;

    double bytes_per_param_step() const noexcept;
    double tokens_per_second() const noexcept;
};

std::string json_of(const Summary& summary);  // one line
std::vector<std::string> lines_of(const Summary& summary);

void save(const Summary& summary, const std::string& path);    // replaces it at once; throws Error (storage, usage)
std::optional<Summary> load_summary(const std::string& path);  // nothing when it is missing or not whole

double median(std::vector<double> values);  // 0 of none
std::uint64_t peak_rss_bytes();             // VmHWM of this process

}  // namespace penstock::trainer
