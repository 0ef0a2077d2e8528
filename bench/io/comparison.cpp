#include "bench/io/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::bench {
namespace {

Figure rate_of(const std::string& what, const Series& series) {
    Figure figure{.name = fmt::format("{}: {}", what, series.who), .unit = "GB/s", .rounds = {}, .target = {}};
    for (const zero::Moved& moved : series.rounds) figure.rounds.push_back(moved.gigabytes_per_second());
    return figure;
}

Figure cpu_of(const std::string& what, const Series& series) {
    Figure figure{.name = fmt::format("{}: CPU of {}", what, series.who), .unit = "s/GB", .rounds = {}, .target = {}};
    for (const zero::Moved& moved : series.rounds) figure.rounds.push_back(moved.cpu_seconds_per_gigabyte());
    return figure;
}

bool positive(const Figure& figure) {
    return std::all_of(figure.rounds.begin(), figure.rounds.end(), [](double value) { return value > 0; });
}

// Three decimals: what is shown is what is judged.
Target target_of(double at_least, double aim) {
    return {.at_least = std::round(at_least * 1000) / 1000, .aim = std::round(aim * 1000) / 1000};
}

std::optional<Target> rate_target(Promise promise, double factor) {
    if (promise == Promise::bulk) return target_of(0.95 * factor, 0.98 * factor);
    if (promise == Promise::tensors) return target_of(0.90 * factor, 0.95 * factor);
    return std::nullopt;
}

}  // namespace

void report_comparison(Report& report, const std::string& what, const Series& ours, const std::vector<Series>& fio,
                       const std::vector<FioMemory>& memories, Promise promise) {
    const Figure rate = rate_of(what, ours);
    const Figure cpu = cpu_of(what, ours);
    report.add(rate);
    for (const Series& other : fio) report.add(rate_of(what, other));
    const auto huge = std::find(memories.begin(), memories.end(), FioMemory::huge_pages);
    for (std::size_t i = 0; i < fio.size(); ++i) {
        Figure share = ratio(fmt::format("{}: penstock ÷ {}", what, fio[i].who), rate, rate_of(what, fio[i]));
        if (memories[i] == FioMemory::huge_pages) share.target = rate_target(promise, 1);
        if (memories[i] == FioMemory::usual && huge != memories.end()) {
            const Series& yardstick = fio[static_cast<std::size_t>(huge - memories.begin())];
            const Figure own = ratio("fio's own two", rate_of(what, yardstick), rate_of(what, fio[i]));
            share.target = rate_target(promise, own.median());
        }
        report.add(std::move(share));
    }
    report.add(cpu);
    for (std::size_t i = 0; i < fio.size(); ++i) {
        const Figure other = cpu_of(what, fio[i]);
        report.add(other);
        if (!positive(other)) {
            report.note(fmt::format("{}: {} shows no CPU time in a round: --seconds is too short", what, fio[i].who));
            continue;
        }
        Figure share = ratio(fmt::format("{}: CPU of penstock ÷ {}", what, fio[i].who), cpu, other);
        if (promise == Promise::bulk && memories[i] == FioMemory::huge_pages)
            share.target = Target{.at_least = 1.3, .aim = 1.0, .better = Target::Better::lower};
        report.add(std::move(share));
    }
}

}  // namespace penstock::bench
