#include "trainer/run/step_log.h"

#include "aio/words/error.h"
#include "trainer/config/schedule.h"

#include <fmt/format.h>

namespace penstock::trainer {
namespace {

RunLog::Begin begin_of(const zero::SessionInfo& info) {
    return info.client.contains(zero::went_on_from_key) ? RunLog::Begin::later : RunLog::Begin::first;
}

}  // namespace

StepLog::StepLog(OpenedRun& run, Console& console)
    : run_(run), console_(console), meter_(run.config(), run.session().info(), run.session().counters()) {
    if (!run.ranks().speaks()) return;
    file_.emplace(run.directory().log(), run.start().state.step, begin_of(run.session().info()));
    for (const std::string& note : file_->take_notes()) console_.warn(note);
    restore_last();
}

// Every earlier line was on the disk before the committed step began.
void StepLog::restore_last() {
    const RunState& state = run_.start().state;
    if (state.step == 0 || !state.last_loss || !state.last_norm) return;
    file_->restore({.step = state.step,
                    .loss = *state.last_loss,
                    .gradient_norm = *state.last_norm,
                    .learning_rate = learning_rate(run_.config().schedule, state.step),
                    .tokens = run_.config().tokens_per_step()});
}

LiveClock StepLog::clock(std::int64_t step) const {
    return {console_, live_.empty() ? fmt::format("{}/{} first step", step, run_.config().steps) : live_};
}

void StepLog::add(const RunProgress& progress, const engine::StepReport& report, double seconds) {
    for (const std::string& note : run_.session().take_notes()) console_.warn(note);
    last_ = meter_.measure(progress, report, seconds, run_.session().counters());
    write(progress, [this] { file_->append(*last_); });
    show(*last_);
}

void StepLog::was_settled(const RunProgress& progress) {
    if (!last_ || last_->committed == progress.committed) return;
    last_->committed = progress.committed;
    write(progress, [this] { file_->replace_last(*last_); });
}

template <typename Write>
void StepLog::write(const RunProgress& progress, const Write& write) const {
    if (!file_) return;
    try {
        write();
    } catch (const Error& error) {
        throw Error(error.code(), with_what_is_safe(error.what(), progress, run_.config().swap_directory()));
    }
}

// A terminal keeps the line of every tenth of the run, and one every ten minutes: how the loss went stays to be seen.
void StepLog::show(const StepRecord& record) {
    if (!console_.is_terminal()) return console_.info(line_of(record));
    live_ = live_line_of(record, console_.columns());
    console_.live(live_);
    const auto now = std::chrono::steady_clock::now();
    const bool tenth = record.step * 10 / record.steps != (record.step - 1) * 10 / record.steps;
    if (!tenth && now - left_standing_ < std::chrono::minutes(10)) return;
    left_standing_ = now;
    console_.settle();
}

}  // namespace penstock::trainer
