// The verbs that compute.
#include "trainer/cli/console.h"
#include "trainer/cli/processes.h"
#include "trainer/cli/stop_signals.h"
#include "trainer/cli/verb_words.h"
#include "trainer/plan/plan_command.h"
#include "trainer/result.h"
#include "trainer/run/train.h"
#include "trainer/verbs.h"

#include <CLI/CLI.hpp>

#include <cstdlib>
#include <memory>
#include <string>

namespace penstock::trainer {
namespace {

constexpr auto train_example =
    "Run the same command again to resume after a stop, a kill or a power cut.\n"
    "Example:\n"
    "  penstock train trainer/demo.json --set memory.host_budget=200MiB --steps 100\n"
    "  penstock train my.json --set gradient_clipping=0.5 --change gradient_clipping\n";

struct TrainOptions {
    TrainRequest request;
    std::string steps;  // as typed: the key table judges it
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
    train.footer(train_example);
}

ExitCode run_train(TrainOptions& options, Console& console, StopSignals& signals) {
    if (const std::string several = complaint_about_processes(std::getenv); !several.empty())
        throw Error(ExitCode::usage, several);
    if (!options.steps.empty()) options.request.overrides.push_back("run.steps=" + options.steps);
    const TrainOutcome outcome = train(options.request, console, signals);
    if (options.json) write_result(json_of(outcome.summary) + "\n");
    if (outcome.signal != 0) StopSignals::end_by(outcome.signal);
    return outcome.code;
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
