// The verbs that compute.
#include "trainer/cli/console.h"
#include "trainer/cli/processes.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/cli/verb_words.h"
#include "trainer/plan/plan_command.h"
#include "trainer/ranks/run_ranks.h"
#include "trainer/result.h"
#include "trainer/run/train.h"
#include "trainer/verbs.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>

namespace penstock::trainer {
namespace {

constexpr auto train_example =
    "Run the same command again to resume after a stop, a kill or a power cut.\n"
    "Example:\n"
    "  penstock train trainer/demo.json --set memory.host_budget=200MiB --steps 100\n"
    "  penstock train my.json --set gradient_clipping=0.5 --change gradient_clipping\n";

struct TrainOptions {
    TrainRequest request;
    std::string steps;      // as typed: the key table judges it
    std::string rank_logs;  // empty: none
    bool json = false;
};

void add_options(CLI::App& train, TrainOptions& options) {
    TrainRequest& request = options.request;
    train.add_option("CONFIG", request.config_file, "configuration, JSON with comments")->required();
    train.add_flag("--json", options.json, "print one JSON object with the result on standard output");
    train.add_option("--set", request.overrides, "KEY=VALUE: set a key of the configuration; may be repeated")
        ->allow_extra_args(false);
    train.add_flag("--plan", request.plan,
                   "measure for some seconds first, say how long a step will take, and at the end how long it took");
    train.add_option("--steps", options.steps, "the same as --set run.steps=N");
    train
        .add_option("--resume-from", request.resume_from,
                    "go on from a kept snapshot, by its name, step or path (`penstock ckpt ls`); what the run has "
                    "committed since is replaced. Given again, it goes on from the newest commit")
        ->check(not_empty);
    train.add_flag(
        "--go-back", request.go_back,
        "give up committed steps: go back to the snapshot of --resume-from again, or go on with a store that "
        "is older than the run's log");
    train
        .add_option("--change", request.change,
                    "KEY: go on with another value of a key than the run was started with, though that changes its "
                    "result; may be repeated")
        ->allow_extra_args(false);
    train
        .add_option("--trace", request.trace.path,
                    "file for a picture of some steps, as JSON for ui.perfetto.dev and chrome://tracing")
        ->check(not_empty);
    train
        .add_option("--trace-steps", request.trace.steps,
                    "N or N..M: the steps of --trace; else the third to the fifth of this start")
        ->check(not_empty);
    train
        .add_option("--rank-logs", options.rank_logs,
                    "of several processes: a folder for what each would say alone, in rank-R.log")
        ->check(not_empty);
    train.footer(train_example);
}

// A rank that waits for a longer time with nothing coming from another one takes it for lost. One that is killed ends
// the others at once.
constexpr std::chrono::minutes silence{30};

// Those that mpirun or srun has started. One that is started alone does not touch MPI.
RunRanks joined_ranks() {
    const auto launch = zero::mpi_launch(std::getenv);
    if (launch && launch->ranks != 1) return RunRanks(zero::join_mpi(*launch, silence));
    if (const std::string several = complaint_about_processes(std::getenv); !several.empty())
        throw Error(ExitCode::usage, several);
    return RunRanks();
}

void make_folder(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error)
        throw Error(ExitCode::usage,
                    fmt::format("--rank-logs {}: it cannot be made: {}; name another folder", path, error.message()));
}

// One voice.
void divide_voices(const RunRanks& ranks, const std::string& logs, Console& console, StopSignals& signals) {
    if (!logs.empty() && ranks.several()) {
        make_folder(logs);
        console.write_to(fmt::format("{}/rank-{}.log", logs, ranks.place().rank));
    }
    if (ranks.speaks()) return;
    console.speak(Console::Voice::errors);
    signals.keep_quiet();
}

ExitCode run_train_of(RunRanks& ranks, const TrainOptions& options, Console& console, StopSignals& signals) {
    const TrainOutcome outcome = train(options.request, ranks, console, signals);
    if (options.json && ranks.speaks()) write_result(json_of(outcome.summary) + "\n");
    ranks.finish();
    if (outcome.signal != 0) StopSignals::end_by(outcome.signal);
    return outcome.code;
}

ExitCode run_train(TrainOptions& options, Console& console, StopSignals& signals) {
    RunRanks ranks = joined_ranks();
    if (!options.steps.empty()) options.request.overrides.push_back("run.steps=" + options.steps);
    try {
        return ranks.telling([&] {
            divide_voices(ranks, options.rank_logs, console, signals);
            return run_train_of(ranks, options, console, signals);
        });
    } catch (...) {
        if (!ranks.is_told_here()) console.speak(Console::Voice::none);
        throw;
    }
}

}  // namespace

Verb add_train(CLI::App& app) {
    const auto options = std::make_shared<TrainOptions>();
    CLI::App* verb = app.add_subcommand("train", "Train a model, or resume its training");
    add_options(*verb, *options);
    return {verb, [options](Console& console, StopSignals& signals) { return run_train(*options, console, signals); }};
}

Verb add_plan(CLI::App& app) {
    const std::function<std::string(Console&)> plan = add_plan_verb(app);
    return {app.get_subcommand("plan"), [plan](Console& console, StopSignals&) {
                write_result(plan(console));
                return ExitCode::ok;
            }};
}

}  // namespace penstock::trainer
