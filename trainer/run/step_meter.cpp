#include "trainer/run/step_meter.h"

#include "trainer/config/schedule.h"
#include "trainer/run/summary.h"

#include <chrono>
#include <ctime>

namespace penstock::trainer {
namespace {

double seconds_of(std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
}

}  // namespace

StepRecord StepMeter::measure(const RunProgress& progress, const engine::StepReport& report, double seconds,
                              const engine::SessionCounters& counters) {
    const bool first = totals_.seconds.empty();
    smooth_seconds_ = first ? seconds : 0.8 * smooth_seconds_ + 0.2 * seconds;
    smooth_loss_ = first ? report.loss : 0.9 * smooth_loss_ + 0.1 * report.loss;
    const std::int64_t step = progress.state.step;
    const StepRecord record{.step = step,
                            .steps = config_.steps,
                            .time_s = std::time(nullptr),
                            .committed = progress.committed,
                            .updated_again = report.updated_again,
                            .loss = report.loss,
                            .smooth_loss = smooth_loss_,
                            .gradient_norm = report.gradient_norm,
                            .learning_rate = learning_rate(config_.schedule, step),
                            .tokens = config_.tokens_per_step(),
                            .seconds = seconds,
                            .forward_seconds = seconds_of(report.forward),
                            .backward_seconds = seconds_of(report.backward),
                            .update_seconds = seconds_of(report.update),
                            .commit_seconds = seconds_of(report.commit),
                            .wait_weights_seconds = seconds_of(counters.waits.weights - counters_.waits.weights),
                            .wait_tiles_seconds = seconds_of(counters.waits.tiles - counters_.waits.tiles),
                            .wait_commit_seconds = seconds_of(counters.waits.commit - counters_.waits.commit),
                            .wait_spill_seconds = seconds_of(counters.waits.spills - counters_.waits.spills),
                            .read_bytes = counters.read_bytes - counters_.read_bytes,
                            .write_bytes = counters.write_bytes - counters_.write_bytes,
                            .pool_peak_bytes = counters.pool_peak_bytes,
                            .pool_budget_bytes = pool_budget_bytes_,
                            .activation_bytes = report.activation_bytes + report.graph_bytes,
                            .away_bytes = report.away_bytes,
                            .peak_rss_bytes = peak_rss_bytes(),
                            .seconds_left = smooth_seconds_ * static_cast<double>(config_.steps - step)};
    counters_ = counters;
    totals_.seconds.push_back(seconds);
    totals_.seconds_total += seconds;
    totals_.read_bytes += record.read_bytes;
    totals_.write_bytes += record.write_bytes;
    totals_.updated_again += report.updated_again ? 1 : 0;
    return record;
}

}  // namespace penstock::trainer
