#include "trainer/run/run_report.h"

#include "aio/words/error.h"
#include "trainer/cli/console.h"
#include "trainer/cli/progress_line.h"
#include "trainer/run/sample.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::trainer {

const Summary& RunReport::conclude(const RunProgress& progress, const StepTotals& totals) {
    gather_figures(totals);
    if (!run_.ranks().speaks()) return wait();
    conclude_here(progress, totals);
    tell(At::end);
    return summary_;
}

const Summary& RunReport::recall(const RunProgress& progress) {
    gather_figures({});
    if (!run_.ranks().speaks()) return wait();
    recall_here(progress);
    tell(At::end);
    return summary_;
}

RunReport::Figures RunReport::own_figures(const StepTotals& totals) const {
    const engine::SessionCounters counters = run_.session().counters();
    return {.planned_bytes = run_.session().info().planned_bytes,
            .read_bytes = totals.read_bytes,
            .write_bytes = totals.write_bytes,
            .pool_peak_bytes = counters.pool_peak_bytes,
            .activation_peak_bytes = counters.activation_peak_bytes,
            .rss_peak_bytes = peak_rss_bytes()};
}

void RunReport::gather_figures(const StepTotals& totals) {
    if (!run_.ranks().several()) return;
    of_others_ = zero::gathered(run_.session().ranks(), "the figures of the run", own_figures(totals));
    of_others_.erase(of_others_.begin() + run_.ranks().place().rank);
}

// Whether all ranks still want a sample.
bool RunReport::tell(At at) {
    if (!run_.ranks().several()) return sample_wanted_();
    struct Word {
        At at;
        bool wanted;
    };
    const auto all = zero::gathered(run_.session().ranks(), "the report", Word{at, sample_wanted_()});
    told_ = all.front().at;
    return std::ranges::all_of(all, &Word::wanted);
}

const Summary& RunReport::wait() {
    while (told_ != At::end) tell(At::end);
    return summary_;
}

// The summary is saved before the sample, which may take minutes and which nobody waits for after a stop.
void RunReport::conclude_here(const RunProgress& progress, const StepTotals& totals) {
    console_.settle();
    fill(progress, totals);
    save(progress);
    if (finished(progress) && run_.config().sample.tokens > 0 && !unsaved_ && sample_wanted_()) {
        write_sample_text();
        fill(progress, totals);
        save(progress);
    }
    say();
    if (unsaved_) console_.error(*unsaved_);
}

void RunReport::recall_here(const RunProgress& progress) {
    const TrainConfig& config = run_.config();
    console_.info(fmt::format("finished: the run in {} has its {} steps; raise run.steps to go on",
                              config.swap_directory(), progress.state.step));
    const std::string file = run_.directory().summary();
    const auto saved = load_summary(file);
    const bool ours = saved && (saved->store.empty() || saved->store == store::to_string(run_.session().info().store));
    if (!ours || saved->steps != progress.state.step)
        return conclude_here(progress, {});  // it was killed between its last commit and its summary
    fill(progress, {});
    summary_.sample = saved->sample;
    if (summary_.sample.empty() && config.sample.tokens > 0) write_sample_text();  // it was stopped or killed before
    say();
    console_.info(fmt::format("{} has the figures of the call that did the steps", file));
}

void RunReport::fill(const RunProgress& progress, const StepTotals& totals) {
    const engine::Model& model = run_.session().model();
    const engine::SessionInfo& info = run_.session().info();
    summary_.steps = progress.state.step;
    summary_.steps_run = static_cast<std::int64_t>(totals.seconds.size());
    summary_.resumed_from_step = run_.start().state.step;
    summary_.committed = progress.committed;
    summary_.params = model.parameter_numel();
    summary_.trainable_params = model.trainable_numel();
    summary_.first_loss = progress.state.first_loss;
    summary_.final_loss = progress.state.last_loss;
    summary_.tokens_per_step = run_.config().tokens_per_step();
    summary_.step_seconds_total = totals.seconds_total;
    summary_.step_seconds_p50 = median(totals.seconds);
    summary_.steps_updated_again = totals.updated_again;
    summary_.formula_bytes_per_param_step = info.nominal_traffic.total();
    summary_.pool_budget_bytes = info.pool_budget_bytes;
    summary_.ranks = run_.ranks().place().ranks;
    fill_figures(totals);
    summary_.checkpoint = run_.config().swap_directory();
    summary_.store = store::to_string(info.store);
    summary_.log = run_.directory().log();
}

// Bytes of all ranks together, peaks of the one that had most.
void RunReport::fill_figures(const StepTotals& totals) {
    Figures all = own_figures(totals);
    for (const Figures& each : of_others_) {
        all.planned_bytes += each.planned_bytes;
        all.read_bytes += each.read_bytes;
        all.write_bytes += each.write_bytes;
        all.pool_peak_bytes = std::max(all.pool_peak_bytes, each.pool_peak_bytes);
        all.activation_peak_bytes = std::max(all.activation_peak_bytes, each.activation_peak_bytes);
        all.rss_peak_bytes = std::max(all.rss_peak_bytes, each.rss_peak_bytes);
    }
    summary_.nvme_read_bytes = all.read_bytes;
    summary_.nvme_write_bytes = all.write_bytes;
    summary_.planned_bytes_per_param_step =
        all.planned_bytes / static_cast<double>(run_.session().model().trainable_numel());
    summary_.pool_peak_bytes = all.pool_peak_bytes;
    summary_.activation_peak_bytes = all.activation_peak_bytes;
    summary_.peak_rss_bytes = all.rss_peak_bytes;
}

// What the run has computed is committed and will be printed: a file that cannot be written only decides the exit code.
void RunReport::save(const RunProgress& progress) {
    try {
        trainer::save(summary_, run_.directory().summary());
    } catch (const Error& error) {
        unsaved_ = with_what_is_safe(error.what(), progress, run_.config().swap_directory());
    }
}

void RunReport::write_sample_text() {
    const TrainConfig& config = run_.config();
    const SampleRequest request{.options = config.sample,
                                .context = config.model.context,
                                .seed = config.session.seed,
                                .device = run_.device()};
    ProgressLine line(console_, "writing a sample");
    summary_.sample = printable(write_sample(run_.session().engine(), request, [&](std::int64_t written) {
        line.show(static_cast<std::uint64_t>(written), static_cast<std::uint64_t>(config.sample.tokens));
        return tell(At::sample);
    }));
}

void RunReport::say() {
    console_.settle();
    if (!summary_.sample.empty()) console_.info("sample:\n" + summary_.sample);
    for (const std::string& line : lines_of(summary_)) console_.info(line);
}

}  // namespace penstock::trainer
