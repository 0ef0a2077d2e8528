// `penstock-bench pool`: what the pool grants for what is asked, how fast, and in how many pieces it is left.
#include "aio/error.h"
#include "bench/pool_replay.h"
#include "bench/pool_shapes.h"
#include "bench/verbs.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace penstock {
namespace {

constexpr auto default_shape = "gpt2-354m";
constexpr std::size_t timed_leases = 10'000;  // a short trace is replayed until there are so many samples
constexpr double gigabyte = 1e9;

struct PoolOptionsOfVerb {
    std::vector<std::string> traces;
    std::vector<std::string> shapes;
    int rounds = static_cast<int>(min_rounds);
};

struct NamedTrace {
    std::string name;
    std::string origin;
    PoolTrace trace;
};

NamedTrace from_shape(const std::string& name) {
    const std::optional<SwapShape> shape = swap_shape(name);
    if (!shape) throw Error(ExitCode::usage, fmt::format("--shape: there is no '{}'; known: {}", name, default_shape));
    return {name,
            fmt::format("generated: {} steps of {:.1f} M parameters, swapped tensor by tensor", shape->steps,
                        static_cast<double>(parameter_count(*shape)) / 1e6),
            tensor_swap_trace(*shape)};
}

std::vector<NamedTrace> chosen_traces(const PoolOptionsOfVerb& options) {
    std::vector<std::string> files = options.traces;
    std::vector<std::string> shapes = options.shapes;
    if (files.empty() && shapes.empty()) {
        files.emplace_back(PENSTOCK_TRACES "/demo.trace");
        shapes.emplace_back(default_shape);
    }
    std::vector<NamedTrace> traces;
    for (const std::string& file : files)
        traces.push_back({std::filesystem::path(file).stem().string(), "recorded: " + file, load_pool_trace(file)});
    for (const std::string& shape : shapes) traces.push_back(from_shape(shape));
    std::set<std::string> names;
    for (const NamedTrace& trace : traces) {
        if (!names.insert(trace.name).second)
            throw Error(ExitCode::usage, fmt::format("two traces are named '{}'", trace.name));
        if (trace.trace.events.empty())
            throw Error(ExitCode::usage, fmt::format("the trace '{}' has no events", trace.name));
    }
    return traces;
}

double share(std::uint64_t above, std::uint64_t below) {
    return below == 0 ? 1 : static_cast<double>(above) / static_cast<double>(below);
}

// REQUIRES: samples.
double quantile(std::vector<std::uint32_t>& samples, double share_below) {
    const auto rank = static_cast<std::size_t>(share_below * static_cast<double>(samples.size() - 1));
    std::nth_element(samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(rank), samples.end());
    return samples[rank];
}

ReplayTimes measured_times(const Replay& replay, PinnedPool& pool) {
    ReplayTimes all;
    do {
        const ReplayTimes once = replay.times(pool);
        all.grant_ns.insert(all.grant_ns.end(), once.grant_ns.begin(), once.grant_ns.end());
        all.return_ns.insert(all.return_ns.end(), once.return_ns.begin(), once.return_ns.end());
    } while (!all.grant_ns.empty() && all.grant_ns.size() < timed_leases);
    return all;
}

// The figures of one trace, filled round by round.
class TraceFigures {
   public:
    explicit TraceFigures(const NamedTrace& named)
        : name_(named.name), demand_(demand_of(named.trace)), replay_(named.trace) {}

    void round(Report& report);
    void report(Report& report) const;

   private:
    void take(const char* what, const char* unit, double value, std::optional<Target> target = std::nullopt);

    const std::string name_;
    const TraceDemand demand_;
    const Replay replay_;
    std::vector<Figure> figures_;  // in the order of the first round
};

void TraceFigures::take(const char* what, const char* unit, double value, std::optional<Target> target) {
    const std::string name = fmt::format("{}: {}", name_, what);
    auto figure = std::find_if(figures_.begin(), figures_.end(), [&](const Figure& f) { return f.name == name; });
    if (figure == figures_.end())
        figure = figures_.insert(figures_.end(), {.name = name, .unit = unit, .rounds = {}, .target = target});
    figure->rounds.push_back(value);
}

void TraceFigures::round(Report& report) {
    constexpr Target promised{.at_least = 1.01, .aim = 1.005, .better = Target::Better::lower};
    PinnedPool pool(replay_.budget(), MachineMemory::read(), {});
    const ReplayAccount account = replay_.account(pool);
    take("granted / requested, all leases", "", share(account.granted_bytes, account.requested_bytes), promised);
    take("granted / requested, at the peak", "", share(account.peak_granted_bytes, account.peak_requested_bytes),
         promised);
    take("reach / peak", "", share(account.reach_bytes, account.use_peak_bytes));
    take("computed: powers of two / requested, all leases", "",
         share(demand_.power_of_two_bytes, demand_.requested_bytes));
    take("computed: powers of two / requested, at the peak", "",
         share(demand_.peak_power_of_two_bytes, demand_.peak_requested_bytes));
    take("fragmentation of the free bytes, worst", "share", account.worst_fragmentation);
    take("free bytes at that moment", "GB", static_cast<double>(account.worst_free_bytes) / gigabyte);
    take("refused", "leases", static_cast<double>(account.refused));
    take("refused though the free bytes sufficed", "leases", static_cast<double>(account.refused_fragmented));
    take("parked at most", "GB", static_cast<double>(account.peak_parked_bytes) / gigabyte);
    ReplayTimes times = measured_times(replay_, pool);
    if (!times.grant_ns.empty()) {
        take("grant, median", "ns", quantile(times.grant_ns, 0.5));
        take("grant, p99", "ns", quantile(times.grant_ns, 0.99));
    }
    if (!times.return_ns.empty()) {  // some traces keep every lease to their end
        take("return, median", "ns", quantile(times.return_ns, 0.5));
        take("return, p99", "ns", quantile(times.return_ns, 0.99));
    }
    if (figures_.front().rounds.size() > 1) return;
    for (const std::string& note : pool.notes()) report.note(fmt::format("{}: {}", name_, note));
}

void TraceFigures::report(Report& report) const {
    for (const Figure& figure : figures_) report.add(figure);
}

// What two readings of the clock cost: part of every time here.
double clock_ns() {
    std::vector<std::uint32_t> samples;
    for (int i = 0; i < 10'000; ++i) {
        const auto start = std::chrono::steady_clock::now();
        const auto end = std::chrono::steady_clock::now();
        samples.push_back(static_cast<std::uint32_t>(std::chrono::nanoseconds(end - start).count()));
    }
    return quantile(samples, 0.5);
}

void say_trace(const NamedTrace& named, Report& report) {
    const TraceDemand demand = demand_of(named.trace);
    report.fact("trace " + named.name, named.origin);
    report.fact(fmt::format("trace {}: demand", named.name),
                fmt::format("{} leases of {:.3f} GB, {:.3f} GB at the peak, from uses of {:.3f} GB, {} refused then",
                            demand.leases, static_cast<double>(demand.requested_bytes) / gigabyte,
                            static_cast<double>(demand.peak_requested_bytes) / gigabyte,
                            static_cast<double>(Replay(named.trace).budget().used_bytes()) / gigabyte, demand.refused));
    if (named.trace.lost_events > 0)
        report.note(fmt::format("{}: {} events were lost when it was recorded: the figures are of those before",
                                named.name, named.trace.lost_events));
}

void measure_pool(const PoolOptionsOfVerb& options, Report& report) {
    const std::vector<NamedTrace> traces = chosen_traces(options);
    std::vector<std::unique_ptr<TraceFigures>> figures;
    for (const NamedTrace& named : traces) {
        say_trace(named, report);
        figures.push_back(std::make_unique<TraceFigures>(named));
    }
    report.fact("clock", fmt::format("{:.0f} ns of each grant and return are the clock's", clock_ns()));
    for (int round = 0; round < options.rounds; ++round) {
        for (const auto& one : figures) one->round(report);
    }
    for (const auto& one : figures) one->report(report);
    report.note("reach / peak: what the uses would have had to have, in one piece, over what was granted at most.");
}

}  // namespace

BenchRun add_pool_verb(CLI::App& app) {
    const auto options = std::make_shared<PoolOptionsOfVerb>();
    CLI::App* verb = app.add_subcommand("pool", "Replay traces of leases through the pool");
    verb->add_option("--trace", options->traces,
                     "a trace that `penstock train --pool-trace FILE` recorded; may be repeated")
        ->allow_extra_args(false);
    verb->add_option("--shape", options->shapes,
                     fmt::format("a trace made by arithmetic: {}; may be repeated", default_shape))
        ->allow_extra_args(false);
    verb->add_option("--rounds", options->rounds, "replays, each in a fresh pool")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    verb->footer(
        "Without --trace and --shape: the demo's recorded trace, and the shape gpt2-354m (needs 1.3 GB).\n"
        "Example:\n  penstock bench pool --trace run.trace --json\n");
    return [options](Report& report) { measure_pool(*options, report); };
}

}  // namespace penstock
