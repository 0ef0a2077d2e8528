#include "trainer/run/train.h"

#include "aio/words/error.h"
#include "trainer/cli/config_file.h"
#include "trainer/cli/console.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/config/resume_rule.h"
#include "trainer/plan/plan_report.h"
#include "trainer/ranks/rank_rules.h"
#include "trainer/ranks/run_ranks.h"
#include "trainer/run/opened_run.h"
#include "trainer/run/run_report.h"
#include "trainer/run/snapshot_policy.h"
#include "trainer/run/step_log.h"
#include "trainer/run/training_loop.h"
#include "trainer/start/output_places.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/cuda.h>

#include <chrono>
#include <csignal>
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

std::vector<std::string> flags_of(const TrainRequest& request) {
    std::vector<std::string> flags;
    if (request.plan) flags.emplace_back("--plan");
    return flags;
}

TrainConfig config_of(const ConfigSource& source, const TrainRequest& request, const RunRanks& ranks,
                      Console& console) {
    TrainConfig config = make_config(Settings::parse(source.text, source.file, source.overrides), ranks.place().ranks);
    for (const std::string& line : fit_to_ranks(config, flags_of(request))) console.info(line);
    check_outputs(config, request.config_file, request.trace.path);
    if (ranks.several() && config.session.device.kind == zero::DeviceKind::cuda)  // else no GPU is asked for anything
        config.session.device.index = ranks.gpu(static_cast<int>(torch::cuda::device_count()));
    return config;
}

// What a rank wishes goes through its steps: the signal that it was told to stop by, and whether a snapshot was asked
// for. Of all wishes the largest counts: it is kept, and who was told to stop says so again in the next step.
constexpr std::uint32_t snapshot_wish = 0x100;
static_assert(snapshot_wish > NSIG);

std::uint32_t wish_of(StopSignals& signals) {
    return static_cast<std::uint32_t>(signals.requested_by()) | (signals.take_snapshot_request() ? snapshot_wish : 0);
}

// What one of several ranks was told by this step.
struct Told {
    int stop = 0;  // the signal; 0: none
    Asked snapshot = Asked::no;
};

// One step, from its tokens to its line in the log.
Told take_step(TrainingLoop& loop, StepLog& log) {
    const auto start = std::chrono::steady_clock::now();
    engine::StepReport report;
    {
        const LiveClock clock = log.clock(loop.step() + 1);
        report = loop.next_step();
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    log.add(loop.progress(), report, seconds.count());
    return {.stop = static_cast<int>(report.wish % snapshot_wish),
            .snapshot = report.wish < snapshot_wish ? Asked::no : Asked::yes};
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

// SIGUSR1 asks for a snapshot.
Asked asked_by(StopSignals& signals) {
    return signals.take_snapshot_request() ? Asked::yes : Asked::no;
}

// From where it was opened to its end, or to a signal.
TrainOutcome carry_on(OpenedRun& run, StepTrace& trace, std::optional<double> planned, Console& console,
                      StopSignals& signals) {
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

    // A signal to any one of several ranks stops all, once a step has told them.
    Told told;
    const bool several = run.ranks().several();
    const auto stopped_by = [&] { return several ? told.stop : signals.requested_by(); };
    signals.react(StopSignals::Reaction::finish_step);
    while (!loop.finished() && stopped_by() == 0) {
        trace.begin_step(loop.step() + 1);
        told = take_step(loop, log);
        if (snapshots.step_ended(loop.step(), several ? told.snapshot : asked_by(signals))) {
            loop.was_settled();
            log.was_settled(loop.progress());
        }
    }
    come_to_rest(run, loop, log, snapshots, console, signals);
    trace.end_steps();
    const Summary& summary = report.conclude(loop.progress(), log.totals());
    if (loop.finished()) return {.code = code(ExitCode::ok), .summary = summary};
    // 75 asks for the same command again: whoever obeys would begin a scratch run anew for ever.
    return {
        .code = code(ExitCode::interrupted), .signal = run.config().durable() ? 0 : stopped_by(), .summary = summary};
}

}  // namespace

TrainOutcome train(const TrainRequest& request, RunRanks& ranks, Console& console, StopSignals& signals) {
    at::set_num_interop_threads(1);
    check_change(request.change);
    const ConfigSource source{read_config(request.config_file), request.config_file, request.overrides};
    TrainConfig config = config_of(source, request, ranks, console);
    StepTrace trace(ranks.speaks() ? request.trace : TraceRequest(), console);
    config.session.trace = trace.recorder();
    if (ranks.several()) config.session.engine.wish = [&signals] { return wish_of(signals); };
    const std::optional<double> planned = request.plan ? planned_seconds(source, console) : std::nullopt;
    OpenedRun run(std::move(config),
                  {.resume_from = request.resume_from, .go_back = request.go_back, .change = request.change}, ranks,
                  console);
    return ranks.telling([&] { return carry_on(run, trace, planned, console, signals); });
}

}  // namespace penstock::trainer
