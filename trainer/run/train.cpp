#include "trainer/run/train.h"

#include "aio/words/error.h"
#include "trainer/cli/config_file.h"
#include "trainer/cli/console.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/config/resume_rule.h"
#include "trainer/plan/plan_report.h"
#include "trainer/run/opened_run.h"
#include "trainer/start/output_places.h"
#include "trainer/run/run_report.h"
#include "trainer/run/snapshot_policy.h"
#include "trainer/run/step_log.h"
#include "trainer/run/training_loop.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

namespace penstock::trainer {
namespace {

// Says what is planned.
std::optional<double> planned_seconds(const ConfigSource& source, Console& console) {
    const RunPlan plan = make_run_plan(
        {.source = source, .telling = [&](const std::string& what) { console.live("measuring " + what); }});
    console.settle();
    console.info(line_of(plan));
    return plan.way.forecast ? std::optional(plan.way.forecast->seconds) : std::nullopt;
}

// One step, from its tokens to its line in the log.
void take_step(TrainingLoop& loop, StepLog& log) {
    const auto start = std::chrono::steady_clock::now();
    engine::StepReport report;
    {
        const LiveClock clock = log.clock(loop.step() + 1);
        report = loop.next_step();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    log.add(loop.progress(), report, seconds.count());
}

// Nothing is under way any more and the newest step is committed, or everybody knows that it will not be.
void come_to_rest(OpenedRun& run, TrainingLoop& loop, StepLog& log, SnapshotPolicy& snapshots, Console& console,
                  StopSignals& signals) {
    if (run.config().durable()) {
        loop.settle();
        log.was_settled(loop.progress());
    } else {
        console.info(fmt::format("scratch: steps {} to {} are not kept", run.start().state.step + 1, loop.step()));
    }
    signals.react(StopSignals::Reaction::end_copy);
    using End = SnapshotPolicy::RunEnd;
    snapshots.finish(loop.step(), loop.finished() ? End::finished : End::stopped,
                     [&] { return !signals.copy_unwanted(); });
    signals.react(StopSignals::Reaction::hurry);
    if (loop.finished()) return;
    console.warn(run.config().durable()
                     ? "stopped by a signal after a committed step; run the same command again to go on"
                     : "stopped by a signal; nothing of a scratch run is kept, so there is nothing to go on with");
}

}  // namespace

TrainOutcome train(const TrainRequest& request, Console& console, StopSignals& signals) {
    at::set_num_interop_threads(1);
    check_change(request.change);
    const ConfigSource source{read_config(request.config_file), request.config_file, request.overrides};
    TrainConfig config = source.with({});
    check_outputs(config, request.config_file, request.trace.path);
    StepTrace trace(request.trace, console);
    config.session.trace = trace.recorder();
    const std::optional<double> planned = request.plan ? planned_seconds(source, console) : std::nullopt;
    OpenedRun run(std::move(config),
                  {.resume_from = request.resume_from, .go_back = request.go_back, .change = request.change}, console);
    trace.begin_after(run.start().state.step);
    TrainingLoop loop(run);
    StepLog log(run, console);
    SnapshotPolicy snapshots(run.config().snapshots, run.session(), console);
    snapshots.remove_unfinished(run.config().session.job);
    RunReport report(run, console, planned, [&] { return !signals.in_haste(); });
    const auto code = [&](ExitCode otherwise) { return report.saved() ? otherwise : ExitCode::storage; };
    if (loop.finished()) {
        signals.react(StopSignals::Reaction::hurry);
        const Summary& summary = report.recall(loop.progress());
        return {.code = code(ExitCode::ok), .summary = summary};
    }

    signals.react(StopSignals::Reaction::finish_step);
    while (!loop.finished() && !signals.requested()) {
        trace.begin_step(loop.step() + 1);
        take_step(loop, log);
        const Asked asked = signals.take_snapshot_request() ? Asked::yes : Asked::no;
        if (snapshots.step_ended(loop.step(), asked)) {
            loop.was_settled();
            log.was_settled(loop.progress());
        }
    }
    come_to_rest(run, loop, log, snapshots, console, signals);
    trace.end_steps();
    const Summary& summary = report.conclude(loop.progress(), log.totals());
    if (loop.finished()) return {.code = code(ExitCode::ok), .summary = summary};
    // 75 asks for the same command again: whoever obeys would begin a scratch run anew for ever.
    return {.code = code(ExitCode::interrupted),
            .signal = run.config().durable() ? 0 : signals.requested_by(),
            .summary = summary};
}

}  // namespace penstock::trainer
