#include "bench/io/mixed_case.h"

#include "aio/words/io_error.h"
#include "zero_infinity/measure/io_rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <random>

namespace penstock::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint32_t block_bytes = 1U << 20;
// More than the bound on write-back lets through: some always wait, as in a long update.
constexpr std::size_t writers = 16;
constexpr std::size_t reader = writers;  // its slot
// The same load in fio: as many writes outstanding as ours has writers, though it hands all of them to the device.
constexpr auto yardstick_depth = static_cast<std::uint32_t>(writers);

class DemandSource final : public zero::RequestSource {
   public:
    DemandSource(const BenchFile& file, double bytes_per_second)
        : file_(file), interval_(std::llround(block_bytes / bytes_per_second * 1e9)), due_(Clock::now()) {}

    bool next(std::size_t slot, aio::TransferRequest& request) noexcept override {
        const std::uint64_t blocks = file_.bytes() / block_bytes;
        if (slot == reader) {
            reader_waits_ = Clock::now() < due_;
            if (reader_waits_) return false;
            due_ += interval_;
            request = {
                .kind = aio::IoKind::read, .file = &file_.file(), .offset_bytes = random_() % blocks * block_bytes};
            request.urgency = aio::Urgency::demand;
        } else {
            request = {
                .kind = aio::IoKind::write, .file = &file_.file(), .offset_bytes = written_++ % blocks * block_bytes};
            request.urgency = aio::Urgency::write_back;
        }
        request.bytes = block_bytes;
        return true;
    }

    std::optional<Later> later() const noexcept override {
        if (!reader_waits_) return std::nullopt;
        return Later{.slot = reader, .at = due_};
    }

   private:
    const BenchFile& file_;
    const std::chrono::nanoseconds interval_;
    Clock::time_point due_;
    bool reader_waits_ = false;
    std::uint64_t written_ = 0;
    std::minstd_rand random_{1};
};

// One contender's rounds.
struct MixSeries {
    std::string who;
    std::vector<double> p50_ms, p99_ms, p999_ms, write_rate, read_rate;

    void add(const std::array<std::chrono::nanoseconds, 3>& quantiles, double write_gb, double read_gb,
             double seconds) {
        const auto ms = [](std::chrono::nanoseconds time) { return static_cast<double>(time.count()) / 1e6; };
        p50_ms.push_back(ms(quantiles[0]));
        p99_ms.push_back(ms(quantiles[1]));
        p999_ms.push_back(ms(quantiles[2]));
        write_rate.push_back(write_gb / seconds);
        read_rate.push_back(read_gb / seconds);
    }
    Figure figure(const std::string& name, const std::string& unit, const std::vector<double>& rounds) const {
        return {.name = fmt::format("demand beside write-back: {}, {}", name, who),
                .unit = unit,
                .rounds = rounds,
                .target = {}};
    }
    Figure p99() const { return figure("read p99", "ms", p99_ms); }
    Figure writes() const { return figure("writes", "GB/s", write_rate); }
};

void measure_ours(IoBench& bench, zero::IoRig& rig, MixSeries& series) {
    DemandSource source(bench.file, bench.options.reader_bytes_per_second);
    const aio::LaneStatistics& lane = rig.io().statistics().lane(aio::IoKind::read, aio::Urgency::demand);
    const aio::LatencySnapshot before = lane.latency.snapshot();
    const std::uint64_t read_before = lane.bytes.load();
    const zero::Moved moved = rig.run(source, bench.options.round_seconds());
    aio::LatencySnapshot times = lane.latency.snapshot();
    times -= before;
    const double read = static_cast<double>(lane.bytes.load() - read_before);
    series.add({times.quantile(0.5), times.quantile(0.99), times.quantile(0.999)},
               (static_cast<double>(moved.bytes) - read) / 1e9, read / 1e9, moved.seconds);
}

FioCommand fio_command(const IoBench& bench, const zero::IoRig& rig, FioMemory memory, std::uint32_t depth) {
    return {.path = bench.file.path(),
            .bytes = bench.file.bytes(),
            .seconds = bench.options.round_seconds(),
            .memory = memory,
            .registered_memory = rig.registered_memory(),
            .registered_file = rig.registered_file(),
            .latencies = true,
            .jobs = {{.name = "writer", .pattern = "write", .block_bytes = block_bytes, .depth = depth},
                     {.name = "reader",
                      .pattern = "randread",
                      .block_bytes = block_bytes,
                      .depth = 1,
                      .rate_bytes_per_second = std::llround(bench.options.reader_bytes_per_second)}}};
}

void measure_fio(IoBench& bench, const FioCommand& command, MixSeries& series) {
    const std::vector<FioFigures> jobs = run_fio(command, bench.stop);
    const FioFigures& writer = jobs[0];
    const FioFigures& read = jobs[1];
    series.add({read.p50, read.p99, read.p999}, static_cast<double>(writer.write_bytes) / 1e9,
               static_cast<double>(read.read_bytes) / 1e9 / read.seconds * writer.seconds, writer.seconds);
}

void report_series(Report& report, const MixSeries& series) {
    report.add(series.figure("read p50", "ms", series.p50_ms));
    report.add(series.p99());
    report.add(series.figure("read p99.9", "ms", series.p999_ms));
    report.add(series.figure("reads", "GB/s", series.read_rate));
    report.add(series.writes());
}

}  // namespace

void run_demand_case(IoBench& bench) {
    aio::IoLimits limits;  // the defaults are what is measured
    zero::IoRig rig(bench.file.file(),
                    bench.rig({.lease_bytes = std::vector<std::size_t>(writers + 1, block_bytes), .limits = limits}));
    bench.note(rig.notes());
    MixSeries ours{.who = "penstock"};
    std::vector<MixSeries> fio;
    std::vector<FioCommand> commands;
    const auto as_many_as_ours = static_cast<std::uint32_t>(limits.in_flight.write_back_bytes / block_bytes);
    for (const std::uint32_t depth : {as_many_as_ours, yardstick_depth}) {
        if (bench.fio.empty()) break;
        commands.push_back(fio_command(bench, rig, bench.fio[0], depth));
        fio.push_back({.who = fmt::format("{}, {} writes in flight", to_string(bench.fio[0]), depth)});
        bench.report.command(shown(fio_arguments(commands.back())));
    }
    run_rounds(bench, "demand beside write-back", 1 + fio.size(), [&](std::size_t i) {
        if (i == 0) {
            measure_ours(bench, rig, ours);
        } else {
            measure_fio(bench, commands[i - 1], fio[i - 1]);
        }
    });
    report_series(bench.report, ours);
    for (const MixSeries& other : fio) report_series(bench.report, other);
    for (std::size_t i = 0; i < fio.size(); ++i) {
        const MixSeries& other = fio[i];
        Figure wait = ratio(fmt::format("demand p99 ÷ {}", other.who), ours.p99(), other.p99());
        Figure rate = ratio(fmt::format("write rate beside it ÷ {}", other.who), ours.writes(), other.writes());
        if (commands[i].jobs[0].depth == yardstick_depth) {
            wait.target = Target{.at_least = 0.6, .aim = 0.4, .better = Target::Better::lower};
            rate.target = Target{.at_least = 0.9, .aim = 0.9};
        }
        bench.report.add(std::move(wait));
        bench.report.add(std::move(rate));
    }
    bench.report.note(
        "demand beside write-back: penstock's times run from start() to done(); fio's from submission to completion");
}

}  // namespace penstock::bench
