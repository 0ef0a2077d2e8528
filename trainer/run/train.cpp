#include "trainer/run/train.h"

#include "aio/words/error.h"
#include "swap/directory/descriptor.h"
#include "trainer/cli/console.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/run/training_run.h"

#include <ATen/Parallel.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

}  // namespace

TrainOutcome train(const TrainRequest& request, Console& console, StopSignals& signals) {
    at::set_num_interop_threads(1);
    TrainingRun run(Settings::parse(read_config(request.config_file), request.config_file, request.overrides), console,
                    {.resume_from = request.resume_from});
    const auto code = [&](ExitCode otherwise) { return run.saved() ? otherwise : ExitCode::storage; };
    if (run.finished()) {
        const Summary& summary = run.recall();
        return {.code = code(ExitCode::ok), .summary = summary};
    }

    signals.react(StopSignals::Reaction::finish_step);
    while (!run.finished() && !signals.requested()) {
        run.next_step();
        run.keep_snapshot(signals.take_snapshot_request());
    }
    run.settle();
    signals.react(StopSignals::Reaction::end_copy);
    run.finish_snapshot([&] { return !signals.copy_unwanted(); });
    signals.react(StopSignals::Reaction::end_at_once);

    const bool stopped = !run.finished();
    if (stopped)
        console.warn(run.durable()
                         ? "stopped by a signal after a committed step; run the same command again to go on"
                         : "stopped by a signal; nothing of a scratch run is kept, so there is nothing to go on "
                           "with");
    const Summary& summary = run.conclude();
    // 75 asks for the same command again: whoever obeys would begin a scratch run anew for ever.
    return {.code = code(stopped ? ExitCode::interrupted : ExitCode::ok),
            .signal = stopped && !run.durable() ? signals.requested_by() : 0,
            .summary = summary};
}

}  // namespace penstock::trainer
