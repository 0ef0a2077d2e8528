#include "bench/io/tune.h"

#include "bench/io/tune_choice.h"
#include "zero_infinity/measure/block_source.h"

#include <fmt/format.h>

#include <algorithm>

namespace penstock::bench {
namespace {

constexpr std::uint64_t mib = 1U << 20;
constexpr double longest_section = 0.25;  // seconds; there are many points

struct Measured {
    std::uint32_t block_bytes = 0;
    std::uint64_t in_flight_bytes = 0;
    Figure read, write;
};

std::vector<Measured> grid() {
    std::vector<Measured> points;
    for (std::uint32_t block = 256U << 10; block <= 4 * mib; block *= 2) {
        for (std::uint64_t in_flight = mib; in_flight <= 32 * mib; in_flight *= 2) {
            if (in_flight < block || in_flight / block > 64) continue;
            const std::string point =
                fmt::format("{} in flight in blocks of {}", bytes_text(in_flight), bytes_text(block));
            points.push_back(
                {.block_bytes = block,
                 .in_flight_bytes = in_flight,
                 .read = {.name = "tune: read, " + point, .unit = "GB/s", .rounds = {}, .target = {}},
                 .write = {.name = "tune: overwrite, " + point, .unit = "GB/s", .rounds = {}, .target = {}}});
        }
    }
    return points;
}

zero::Moved move(IoBench& bench, const BenchFile& file, zero::BlockWork work, std::uint32_t block,
                 std::uint64_t in_flight, std::optional<double> seconds) {
    zero::IoRig rig(bench.file.file(), bench.rig(zero::plain_rig(block, in_flight)));
    bench.note(rig.notes());
    zero::BlockSource source(
        file.file(), {.work = work, .block_bytes = block, .file_bytes = file.bytes(), .once = !seconds.has_value()});
    return rig.run(source, seconds);
}

Figure first_writes(IoBench& bench, const TuneChoice& choice) {
    Figure figure{.name = "tune: first write at the chosen point", .unit = "GB/s", .rounds = {}, .target = {}};
    run_rounds(bench, "tune: first write", 1, [&](std::size_t) {
        const BenchFile fresh(bench.options.directory, "fresh", bench.file.bytes());
        figure.rounds.push_back(
            move(bench, fresh, zero::BlockWork::write, choice.block_bytes, choice.write_in_flight_bytes, std::nullopt)
                .gigabytes_per_second());
    });
    return figure;
}

}  // namespace

void tune(IoBench& bench, aio::DeviceProfile& profile) {
    std::vector<Measured> points = grid();
    const double seconds = std::min(longest_section, bench.options.round_seconds());
    run_rounds(bench, "tune", points.size(), [&](std::size_t i) {
        Measured& at = points[i];
        const auto rate = [&](zero::BlockWork work) {
            return move(bench, bench.file, work, at.block_bytes, at.in_flight_bytes, seconds).gigabytes_per_second();
        };
        at.read.rounds.push_back(rate(zero::BlockWork::read));
        at.write.rounds.push_back(rate(zero::BlockWork::write));
    });
    std::vector<TunePoint> medians;
    for (Measured& at : points) {
        medians.push_back({.block_bytes = at.block_bytes,
                           .in_flight_bytes = at.in_flight_bytes,
                           .read_rate = at.read.median(),
                           .write_rate = at.write.median()});
        bench.report.add(std::move(at.read));
        bench.report.add(std::move(at.write));
    }
    const TuneChoice choice = choose_point(medians);
    const Figure first = first_writes(bench, choice);
    bench.report.add(first);
    profile.block_bytes = choice.block_bytes;
    profile.read_in_flight_bytes = choice.read_in_flight_bytes;
    profile.write_in_flight_bytes = choice.write_in_flight_bytes;
    profile.read_bytes_per_second = choice.read_rate * 1e9;
    profile.overwrite_bytes_per_second = choice.write_rate * 1e9;
    profile.first_write_bytes_per_second = first.median() * 1e9;
    bench.report.note(
        fmt::format("tune: blocks of {}, {} in flight for reads ({:.2f} GB/s), {} for writes ({:.2f} GB/s)",
                    bytes_text(choice.block_bytes), bytes_text(choice.read_in_flight_bytes), choice.read_rate,
                    bytes_text(choice.write_in_flight_bytes), choice.write_rate));
}

}  // namespace penstock::bench
