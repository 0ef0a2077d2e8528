#include "bench/io/tensor_case.h"

#include "aio/words/check.h"
#include "aio/words/io_error.h"
#include "bench/io/comparison.h"
#include "bench/io/tensor_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::bench {
namespace {

FioCommand fio_command(const IoBench& bench, TensorRun& run, aio::IoKind kind, FioMemory memory, const Series& ours) {
    PENSTOCK_CHECK(!ours.rounds.empty(), "fio has its turn before ours");
    return {.path = bench.file.path(),
            .bytes = bench.file.bytes(),
            .seconds = seconds_after(ours.rounds.back()),
            .memory = memory,
            .registered_memory = run.rig().registered_memory(),
            .registered_file = run.rig().registered_file(),
            .jobs = {{.name = "bulk", .pattern = to_string(kind)}}};
}

void compare(IoBench& bench, TensorRun& run, aio::IoKind kind) {
    const std::string what = fmt::format("tensors {}", to_string(kind));
    Series ours{.who = "penstock", .rounds = {}};
    std::vector<Series> fio;
    std::vector<std::string> last_commands(bench.fio.size());
    for (const FioMemory memory : bench.fio) fio.push_back({.who = to_string(memory), .rounds = {}});
    run_rounds(bench, what, 1 + fio.size(), [&](std::size_t i) {
        if (i == 0) {
            ours.rounds.push_back(kind == aio::IoKind::read ? run.read() : run.write());
        } else {
            const FioCommand command = fio_command(bench, run, kind, bench.fio[i - 1], ours);
            fio[i - 1].rounds.push_back(moved_by_fio(bench, command));
            last_commands[i - 1] = shown(fio_arguments(command));
        }
    });
    for (std::string& line : last_commands) bench.report.command(std::move(line));
    report_comparison(bench.report, what, ours, fio, bench.fio, Promise::tensors);
}

}  // namespace

double seconds_after(const zero::Moved& ours) {
    return std::ceil(ours.seconds * 1e3) / 1e3;
}

void run_tensor_case(IoBench& bench) {
    TensorRun run(bench);
    const auto& lengths = run.plan().bytes;
    std::uint64_t sum = 0;
    for (const std::uint64_t bytes : lengths) sum += bytes;
    const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
    bench.report.fact("tensors", fmt::format("{} of {} to {} bytes, {} in all, seed {}", lengths.size(), *least, *most,
                                             sum, TensorRun::seed));
    compare(bench, run, aio::IoKind::write);
    run.write();  // fio has overwritten the tensors since; the rounds of reads look whether they came to the device
    compare(bench, run, aio::IoKind::read);
    if (!bench.fio.empty())
        bench.note(
            {"tensors: fio ran as long as the section of ours before it, to the end of its last tensors; its "
             "last commands are shown"});
}

}  // namespace penstock::bench
