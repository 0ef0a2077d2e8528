#include "trainer/run/train.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "trainer/cli/console.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/config/resume_rule.h"
#include "trainer/run/opened_run.h"
#include "trainer/run/run_report.h"
#include "trainer/run/snapshot_policy.h"
#include "trainer/run/step_log.h"
#include "trainer/run/training_loop.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

namespace penstock::trainer {
namespace {

constexpr std::size_t max_config_bytes = 1U << 20;

// To the end and not by its length: it may be a pipe, e.g. `penstock train <(jq ... base.json)`.
std::string read_config(const std::string& path) {
    const store::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) throw Error(ExitCode::usage, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
    std::string text(max_config_bytes + 1, ' ');
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Error(ExitCode::usage, fmt::format("cannot read {}: {}", path, std::strerror(errno)));
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    if (done > max_config_bytes)
        throw Error(ExitCode::usage,
                    fmt::format("{} is longer than {} bytes, which no configuration is; check the path", path,
                                max_config_bytes));
    text.resize(done);
    return text;
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
    signals.react(StopSignals::Reaction::end_at_once);
    if (loop.finished()) return;
    console.warn(run.config().durable()
                     ? "stopped by a signal after a committed step; run the same command again to go on"
                     : "stopped by a signal; nothing of a scratch run is kept, so there is nothing to go on with");
}

}  // namespace

TrainOutcome train(const TrainRequest& request, Console& console, StopSignals& signals) {
    at::set_num_interop_threads(1);
    check_change(request.change);
    StepTrace trace(request.trace, console);
    TrainConfig config =
        make_config(Settings::parse(read_config(request.config_file), request.config_file, request.overrides));
    config.session.trace = trace.recorder();
    OpenedRun run(std::move(config),
                  {.resume_from = request.resume_from, .go_back = request.go_back, .change = request.change}, console);
    trace.begin_after(run.start().state.step);
    TrainingLoop loop(run);
    StepLog log(run, console);
    SnapshotPolicy snapshots(run.config().snapshots, run.session(), console);
    snapshots.remove_unfinished(run.config().session.job);
    RunReport report(run, console);
    const auto code = [&](ExitCode otherwise) { return report.saved() ? otherwise : ExitCode::storage; };
    if (loop.finished()) {
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
    const Summary& summary = report.conclude(loop.progress(), log.totals());
    if (loop.finished()) return {.code = code(ExitCode::ok), .summary = summary};
    // 75 asks for the same command again: whoever obeys would begin a scratch run anew for ever.
    return {.code = code(ExitCode::interrupted),
            .signal = run.config().durable() ? 0 : signals.requested_by(),
            .summary = summary};
}

}  // namespace penstock::trainer
