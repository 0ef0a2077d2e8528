// penstock bench step: whole training steps beside what the device and the processors would allow.
#include "aio/words/error.h"
#include "bench/harness/byte_option.h"
#include "bench/harness/interruption.h"
#include "bench/harness/verbs.h"
#include "bench/harness/word_option.h"
#include "bench/step/step_rounds.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

namespace penstock::bench {
namespace {

struct VerbOptions {
    StepBenchOptions bench;
    std::vector<std::string> orders;
};

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ExitCode::usage, what);
}

void run_step(const VerbOptions& given, Report& report) {
    StepBenchOptions options = given.bench;
    for (const std::string& order : given.orders) {
        options.orders.push_back(*find_word<StepWay>(order));
        if (std::count(given.orders.begin(), given.orders.end(), order) > 1)
            refuse(fmt::format("--orders: {} stands twice", order));
    }
    if (!(options.seconds >= 0.05 && options.seconds <= 3600))
        refuse(fmt::format("--seconds {}: expected 0.05 to 3600", options.seconds));
    for (const std::string& setting : options.overrides)
        if (setting.starts_with("run.update_order=") || setting.starts_with("run.steps="))
            refuse(fmt::format("--set {}: the turns set it themselves (--orders, --steps)", setting));
    Interruption stop;
    run_step_bench(options, stop, report);
}

}  // namespace

BenchRun add_step_verb(CLI::App& app) {
    const auto options = std::make_shared<VerbOptions>();
    StepBenchOptions& bench = options->bench;
    CLI::App* verb = app.add_subcommand(
        "step", "whole training steps, in each order of updates, beside what device and compute would allow");
    verb->add_option("--dir", bench.directory, "a directory on the device; holds the store, leaves nothing")
        ->required();
    verb->add_option("--config", bench.config, "a configuration of `penstock train` (a GPT of the sizes below)")
        ->check(CLI::ExistingFile);
    verb->add_option("--layers", bench.layers, "of that GPT")->check(CLI::Range(1, 10000))->capture_default_str();
    verb->add_option("--hidden", bench.hidden, "its width")->check(CLI::Range(8, 1 << 20))->capture_default_str();
    verb->add_option("--tokens", bench.tokens, "of a step: one row")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    verb->add_option("--budget", bench.host_budget_bytes, "host memory of its pool, e.g. 3GiB")
        ->transform(bytes_of_text)
        ->capture_default_str();
    verb->add_option("--set", bench.overrides, "KEY=VALUE of the configuration; may be repeated")
        ->allow_extra_args(false);
    verb->add_option("--orders", options->orders, "some of them (all that the configuration allows)")
        ->delimiter(',')
        ->check(CLI::IsMember(std::vector<std::string>(all_words<StepWay>.begin(), all_words<StepWay>.end())));
    verb->add_option("--steps", bench.steps, "measured in one turn")->check(CLI::Range(1, 1000))->capture_default_str();
    verb->add_option("--warm-up", bench.warm_up, "steps before them in each turn")
        ->check(CLI::Range(0, 1000))
        ->capture_default_str();
    verb->add_option("--rounds", bench.rounds, "rounds, all contenders taking turns")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    verb->add_option("--seconds", bench.seconds, "of the device's reads, writes, and both, in each round")
        ->capture_default_str();
    verb->footer("Example:\n  penstock bench step --dir /nvme --tokens 1024 --json\n");
    return [options](Report& report) { run_step(*options, report); };
}

}  // namespace penstock::bench
