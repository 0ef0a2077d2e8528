// `penstock-bench ranks`: who is where of the ranks that mpirun or srun has started, and how fast they speak.
#include "aio/words/error.h"
#include "bench/harness/byte_option.h"
#include "bench/harness/verbs.h"
#include "bench/ranks/rank_home.h"
#include "zero_infinity/ranks/collectives.h"
#include "zero_infinity/ranks/mpi/mpi_ranks.h"
#include "zero_infinity/ranks/rank_probe.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace penstock::bench {
namespace {

using zero::RankRates;
using zero::Transport;

constexpr std::chrono::minutes deadline{2};
constexpr std::uint64_t most_bytes = std::uint64_t{1} << 40;

struct RanksOptions {
    std::uint64_t bytes = std::uint64_t{16} << 20;
    int rounds = static_cast<int>(min_rounds);
};

// The least of all ranks in each round.
std::vector<double> slowest(std::span<const RankRates> of_ranks, std::size_t rounds, double RankRates::*rate) {
    std::vector<double> least(rounds);
    for (std::size_t round = 0; round < rounds; ++round) {
        least[round] = of_ranks[round].*rate;
        for (std::size_t at = round; at < of_ranks.size(); at += rounds)
            least[round] = std::min(least[round], of_ranks[at].*rate);
    }
    return least;
}

void add_rate(Report& report, const char* name, std::vector<double> rates) {
    for (double& rate : rates) rate /= 1e9;
    report.add({.name = name, .unit = "GB/s", .rounds = std::move(rates)});
}

void report_rates(Report& report, std::span<const RankRates> of_ranks, std::size_t rounds) {
    report.fact("sums", "in each round the bits of the loop that adds one rank after the other");
    if (of_ranks.size() > rounds) {
        add_rate(report, "gather", slowest(of_ranks, rounds, &RankRates::gather_rate));
        add_rate(report, "exchange and its sum", slowest(of_ranks, rounds, &RankRates::exchange_rate));
    }
    add_rate(report, "sum alone", slowest(of_ranks, rounds, &RankRates::sum_rate));
    if (of_ranks.size() == rounds) return;
    Figure small{.name = "small call", .unit = "ms", .rounds = std::vector<double>(rounds)};
    for (std::size_t at = 0; at < of_ranks.size(); ++at)
        small.rounds[at % rounds] = std::max(small.rounds[at % rounds], of_ranks[at].small_seconds * 1e3);
    report.add(std::move(small));
    report.note("Rates are of bytes that come to the slowest rank from others; a small call is one of 64 bytes.");
}

void measure_between(Transport& bulk, Transport& control, const RanksOptions& options, Report& report) {
    const std::vector<RankHome> homes = rank_homes(control);
    zero::Collectives all(control);
    // What the probe has: a part, those of all ranks, and pieces of theirs on the way.
    if (control.rank() == 0)
        check_homes(homes, {"parts of all ranks, in each rank", (2 * homes.size() + 1) * options.bytes, "--bytes"});
    all.all_gather("memory for all", {}, {});
    report.fact("ranks", fmt::format("{}, {}", homes.size(), bulk.name()));
    for (const HomeLine& line : home_lines(homes)) report.fact(line.name, line.text);
    report.fact("bytes", fmt::format("{} of each rank", bytes_text(options.bytes)));
    std::vector<RankRates> own;
    for (int round = 0; round < options.rounds; ++round) own.push_back(probe_ranks(bulk, control, options.bytes));
    std::vector<RankRates> of_ranks(homes.size() * own.size());
    all.all_gather("the rates", std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(of_ranks)));
    report_rates(report, of_ranks, own.size());
}

// One voice: rank 0 has the result, and an error is told by the rank that had it first.
void measure_over_mpi(zero::MpiRanks& ranks, const RanksOptions& options, Report& report) {
    try {
        measure_between(ranks.bulk(), ranks.control(), options, report);
        ranks.finish();
    } catch (const std::exception& error) {
        ranks.control().abort(error.what());
        if (ranks.ended_by()) report.keep_quiet();
        throw;
    }
    if (ranks.place().rank != 0) report.keep_quiet();
}

void measure_ranks(const RanksOptions& options, Report& report) {
    if (options.bytes % sizeof(float) != 0 || options.bytes > most_bytes)
        throw Error(ExitCode::usage, fmt::format("--bytes {}: expected a multiple of {} up to {}", options.bytes,
                                                 sizeof(float), most_bytes));
    if (const auto launch = zero::mpi_launch([](const char* name) { return std::getenv(name); })) {
        measure_over_mpi(*zero::join_mpi(*launch, deadline), options, report);
        return;
    }
    zero::TransportAlone bulk, control;
    measure_between(bulk, control, options, report);
    report.note("One rank has nobody to speak to. To start several: mpirun -n 2 penstock-bench ranks");
}

}  // namespace

BenchRun add_ranks_verb(CLI::App& app) {
    const auto options = std::make_shared<RanksOptions>();
    CLI::App* verb =
        app.add_subcommand("ranks", "Who is where of the ranks of mpirun or srun, and how fast they speak");
    verb->add_option("--bytes", options->bytes, "of one rank's part; a rank holds twice as many for each rank")
        ->transform(bytes_of_text)
        ->capture_default_str();
    verb->add_option("--rounds", options->rounds, "of all figures")->check(CLI::Range(1, 1000))->capture_default_str();
    verb->footer("Example:\n  mpirun -n 2 penstock-bench ranks\n");
    return [options](Report& report) { measure_ranks(*options, report); };
}

}  // namespace penstock::bench
