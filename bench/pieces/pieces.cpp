// `penstock-bench pieces`: the small pieces, each by itself, by Google Benchmark. What is measured stands in
// pieces_*.cpp.
#include "aio/words/error.h"
#include "bench/harness/verbs.h"

#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock::bench {
namespace {

struct PiecesOptions {
    std::string filter = ".";
    int rounds = static_cast<int>(min_rounds);
    double seconds = 0.1;
};

// Gathers repetitions as rounds; prints nothing.
class RoundsReporter final : public benchmark::BenchmarkReporter {
   public:
    bool ReportContext(const Context& /*context*/) override { return true; }
    void ReportRuns(const std::vector<Run>& runs) override;
    void report(Report& report) const;

   private:
    struct Piece {
        Figure time;
        Figure rate;
        std::string error;
    };
    Piece& piece(const benchmark::BenchmarkName& name);

    std::map<std::string, Piece> pieces_;  // by name: they come in random order
};

// "submit_null", "triad/threads:2": a piece that is registered with several arguments is as many pieces.
RoundsReporter::Piece& RoundsReporter::piece(const benchmark::BenchmarkName& its_name) {
    const std::string name = its_name.function_name + (its_name.args.empty() ? "" : "/" + its_name.args);
    const auto [found, fresh] = pieces_.try_emplace(name);
    if (fresh) {
        found->second.time = {.name = name, .unit = "ns", .rounds = {}};
        found->second.rate = {.name = name + ": bytes", .unit = "GB/s", .rounds = {}};
    }
    return found->second;
}

void RoundsReporter::ReportRuns(const std::vector<Run>& runs) {
    for (const Run& run : runs) {
        if (run.run_type != Run::RT_Iteration) continue;
        Piece& one = piece(run.run_name);
        if (run.error_occurred) {
            one.error = run.error_message;
            continue;
        }
        one.time.rounds.push_back(run.real_accumulated_time * 1e9 / static_cast<double>(run.iterations));
        const auto bytes = run.counters.find("bytes_per_second");
        if (bytes != run.counters.end()) one.rate.rounds.push_back(bytes->second.value / 1e9);
    }
}

void RoundsReporter::report(Report& report) const {
    for (const auto& [name, piece] : pieces_) {
        if (!piece.error.empty()) report.note(fmt::format("{}: left out: {}", name, piece.error));
        if (!piece.time.rounds.empty()) report.add(piece.time);
        if (!piece.rate.rounds.empty()) report.add(piece.rate);
    }
}

// Its settings are the library's own command line. Repetitions of different pieces are mixed, as rounds must be.
void set_up(const PiecesOptions& options) {
    std::array<std::string, 4> flags = {"penstock-bench", fmt::format("--benchmark_repetitions={}", options.rounds),
                                        fmt::format("--benchmark_min_time={}", options.seconds),
                                        "--benchmark_enable_random_interleaving=true"};
    std::array<char*, flags.size()> arguments{};
    for (std::size_t i = 0; i < flags.size(); ++i) arguments[i] = flags[i].data();
    int count = static_cast<int>(arguments.size());
    benchmark::Initialize(&count, arguments.data());
}

void measure_pieces(const PiecesOptions& options, Report& report) {
    set_up(options);
    report.fact("library", fmt::format("Google Benchmark, {} s for each round of each piece", options.seconds));
    RoundsReporter rounds;
    const std::size_t found = benchmark::RunSpecifiedBenchmarks(&rounds, options.filter);
    rounds.report(report);
    if (found == 0)
        throw Error(ExitCode::usage,
                    fmt::format("--filter: no piece matches '{}'; without --filter all are shown", options.filter));
    report.note("ns: one operation, wall clock of one thread. bytes: what a piece reads and writes of memory, once.");
}

}  // namespace

BenchRun add_pieces_verb(CLI::App& app) {
    const auto options = std::make_shared<PiecesOptions>();
    CLI::App* verb = app.add_subcommand("pieces", "Small pieces: a submit, a lease, a hash, the arithmetic of a step");
    verb->add_option("--filter", options->filter, "regular expression: the pieces to measure");
    verb->add_option("--rounds", options->rounds, "of each piece, in random order")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    verb->add_option("--seconds", options->seconds, "of each round, at least")
        ->check(CLI::Range(0.001, 60.0))
        ->capture_default_str();
    verb->footer("Example:\n  penstock bench pieces --filter 'lease|submit'\n");
    return [options](Report& report) { measure_pieces(*options, report); };
}

}  // namespace penstock::bench
