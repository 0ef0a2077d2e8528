// penstock bench optimizer: optimizers on host memory, alone and in their codecs, beside STREAM's triad and, where
// there is a Python that has them, beside other people's.
#include "aio/words/error.h"
#include "bench/harness/interruption.h"
#include "bench/harness/verbs.h"
#include "bench/io/io_bench.h"
#include "bench/optimizer/optimizer_rounds.h"
#include "pinned_pool/budget.h"
#include "zero_infinity/threads/usable_cores.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

namespace penstock::bench {
namespace {

// As the command line gives it.
struct Arguments {
    OptimizerRoundsOptions rounds;
    unsigned threads = zero::UsableCores::read().count;
    std::string peers;
};

void check_memory(std::uint64_t numel) {
    const std::uint64_t bytes = optimizer_contenders_bytes(numel);
    pool::Budget budget(bytes + pool::granule_bytes, "--numel");
    budget.add({"arrays of all contenders", bytes, "--numel"});
    budget.check(pool::MachineMemory::read());
}

void measure_optimizers(const Arguments& arguments, Report& report) {
    OptimizerRoundsOptions options = arguments.rounds;
    constexpr std::uint64_t most = 1ULL << 40;
    if (options.numel == 0 || options.numel % work_piece_numel != 0 || options.numel > most) {
        throw Error(ExitCode::usage, fmt::format("--numel {}: expected a multiple of {} up to {}", options.numel,
                                                 work_piece_numel, most));
    }
    if (!arguments.peers.empty()) options.python = find_python(arguments.peers);
    check_memory(options.numel);
    Interruption stop;
    report.fact("elements", fmt::format("{}, {} of fp32", options.numel, bytes_text(4 * options.numel)));
    report.fact("rounds", fmt::format("{} of {} s each, contenders taking turns", options.rounds, options.seconds));
    if (!options.python.empty()) report.fact("peers", options.python);
    std::vector<OptimizerContender> contenders = make_optimizer_contenders(options.numel);
    std::vector<unsigned> thread_counts = {1};
    if (arguments.threads > 1) thread_counts.push_back(arguments.threads);
    for (const unsigned threads : thread_counts) {
        OptimizerRounds rounds(options, contenders, threads);
        rounds.measure(stop);
        rounds.report(report);
    }
    report.note(how_optimizer_bytes_are_counted);
}

}  // namespace

BenchRun add_optimizer_verb(CLI::App& app) {
    const auto arguments = std::make_shared<Arguments>();
    OptimizerRoundsOptions& rounds = arguments->rounds;
    CLI::App* verb = app.add_subcommand("optimizer", "Optimizers and their codecs on host memory, beside a triad");
    verb->add_option("--threads", arguments->threads, "after a series with one; all that this process may use")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    verb->add_option("--rounds", rounds.rounds, "of all contenders, in turns")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    verb->add_option("--seconds", rounds.seconds, "of each contender in each round")
        ->check(CLI::Range(0.001, 60.0))
        ->capture_default_str();
    verb->add_option("--numel", rounds.numel, "elements of each array; 4 bytes each must be more than the caches hold")
        ->capture_default_str();
    verb->add_option("--peers", arguments->peers,
                     "a Python with torch and DeepSpeed, or its environment: their AdamW in each round "
                     "(bench/peers/venv.sh makes one)");
    verb->footer(fmt::format("{}\n\nExample:\n  penstock bench optimizer --peers .peers/deepspeed\n",
                             how_optimizer_bytes_are_counted));
    return [arguments](Report& report) { measure_optimizers(*arguments, report); };
}

}  // namespace penstock::bench
