#include "bench/io/fio.h"

#include "aio/words/error.h"
#include "aio/words/io_error.h"
#include "bench/harness/child.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::bench {
namespace {

using nlohmann::json;

// Beside the measured time: start, file set-up, report.
constexpr std::chrono::seconds overhead(120);

std::vector<std::string> job_arguments(const FioJob& job) {
    std::vector<std::string> arguments = {"--name=" + job.name, "--rw=" + job.pattern,
                                          fmt::format("--bs={}", job.block_bytes),
                                          fmt::format("--iodepth={}", job.depth)};
    if (job.pattern == "rw") arguments.emplace_back("--rwmixread=50");
    if (job.rate_bytes_per_second) arguments.push_back(fmt::format("--rate={}", *job.rate_bytes_per_second));
    return arguments;
}

// The value of a percentile, whose key is text: "99.000000".
std::chrono::nanoseconds percentile(const json& direction, const char* key) {
    const json& latency = direction.at("clat_ns");
    if (!latency.contains("percentile")) return std::chrono::nanoseconds(0);
    return std::chrono::nanoseconds(latency.at("percentile").at(key).get<std::int64_t>());
}

FioFigures figures_of(const json& job) {
    const json& read = job.at("read");
    const json& write = job.at("write");
    FioFigures figures;
    figures.name = job.at("jobname").get<std::string>();
    if (const int error = job.at("error").get<int>(); error != 0) {
        throw Error(ExitCode::storage, fmt::format("fio's job {} failed: {}", figures.name, aio::errno_text(error)));
    }
    figures.read_bytes = read.at("io_bytes").get<std::uint64_t>();
    figures.write_bytes = write.at("io_bytes").get<std::uint64_t>();
    figures.seconds = std::max(read.at("runtime").get<double>(), write.at("runtime").get<double>()) / 1e3;
    figures.cpu_seconds = (job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>()) / 100 *
                          job.at("job_runtime").get<double>() / 1e3;
    const json& timed = figures.read_bytes > 0 ? read : write;
    figures.p50 = percentile(timed, "50.000000");
    figures.p99 = percentile(timed, "99.000000");
    figures.p999 = percentile(timed, "99.900000");
    if (figures.read_bytes + figures.write_bytes == 0 || figures.seconds <= 0) {
        throw Error(ExitCode::storage,
                    fmt::format("fio's job {} moved nothing; try its command by hand", figures.name));
    }
    return figures;
}

}  // namespace

const char* to_string(FioMemory memory) noexcept {
    return memory == FioMemory::usual ? "fio default" : "fio mmaphuge";
}

// fio's best honest settings:
//   --ioengine=io_uring --direct=1   the fastest way it has to a file
//   --scramble_buffers=0             it would touch every buffer before each write, which is not I/O
//   --norandommap=1                  no bookkeeping of which random blocks were visited
//   --gtod_reduce=1                  where no latencies are wanted: no clock calls
//   --fixedbufs, --registerfiles     where our side has the same registered
//   no --verify, no fsync, no --thread: nothing that costs it time; the file is laid out before
std::vector<std::string> fio_arguments(const FioCommand& command) {
    std::vector<std::string> arguments = {"fio",
                                          "--output-format=json",
                                          "--filename=" + command.path,
                                          fmt::format("--size={}", command.bytes),
                                          "--allow_file_create=0",
                                          "--ioengine=io_uring",
                                          "--direct=1",
                                          "--scramble_buffers=0",
                                          "--norandommap=1"};
    if (command.seconds) {
        arguments.emplace_back("--time_based=1");
        arguments.push_back(fmt::format("--runtime={}ms", std::llround(*command.seconds * 1e3)));
    }
    if (command.memory == FioMemory::huge_pages) arguments.emplace_back("--mem=mmaphuge");
    if (command.registered_memory) arguments.emplace_back("--fixedbufs=1");
    if (command.registered_file) arguments.emplace_back("--registerfiles=1");
    arguments.emplace_back(command.latencies ? "--percentile_list=50:99:99.9" : "--gtod_reduce=1");
    for (const FioJob& job : command.jobs) {
        const std::vector<std::string> own = job_arguments(job);
        arguments.insert(arguments.end(), own.begin(), own.end());
    }
    return arguments;
}

std::string shown(const std::vector<std::string>& arguments) {
    std::string line;
    for (const std::string& argument : arguments) {
        const bool plain = argument.find_first_of(" \t\"'$&|;<>()*?\\") == std::string::npos;
        line += (line.empty() ? "" : " ") + (plain ? argument : "'" + argument + "'");
    }
    return line;
}

std::vector<FioFigures> parse_fio(std::string_view text) {
    // Warnings may stand before the object.
    const std::size_t begin = text.find('{');
    const json root = json::parse(text.substr(std::min(begin, text.size())), nullptr, false);
    try {
        std::vector<FioFigures> figures;
        for (const json& job : root.at("jobs")) figures.push_back(figures_of(job));
        return figures;
    } catch (const json::exception& error) {
        throw Error(ExitCode::internal, fmt::format("fio's report is not understood: {}", error.what()));
    }
}

std::vector<FioFigures> run_fio(const FioCommand& command, Interruption& stop) {
    const std::vector<std::string> arguments = fio_arguments(command);
    const auto measured = std::chrono::milliseconds(std::llround(command.seconds.value_or(0) * 1e3));
    const ChildOutcome child = run_child(arguments, measured + overhead, stop);
    if (child.exit_status != 0) {
        throw Error(ExitCode::storage, fmt::format("fio ended with {}: {}\nits command: {}", child.exit_status,
                                                   child.errors.empty() ? "no words" : child.errors, shown(arguments)));
    }
    std::vector<FioFigures> figures = parse_fio(child.output);
    if (figures.size() != command.jobs.size()) {
        throw Error(ExitCode::internal, fmt::format("fio reports {} jobs of {}", figures.size(), command.jobs.size()));
    }
    return figures;
}

std::optional<std::string> fio_version(Interruption& stop) {
    const ChildOutcome child = run_child({"fio", "--version"}, std::chrono::seconds(20), stop);
    if (child.exit_status != 0) return std::nullopt;
    return child.output.substr(0, child.output.find('\n'));
}

}  // namespace penstock::bench
