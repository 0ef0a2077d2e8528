// penstock bench io: NVMe through Io and pool, beside fio.
#include "aio/profile.h"
#include "aio/words/error.h"
#include "bench/harness/byte_option.h"
#include "bench/harness/huge_pages.h"
#include "bench/harness/verbs.h"
#include "bench/harness/word_option.h"
#include "bench/io/io_cases.h"
#include "bench/io/mixed_case.h"
#include "bench/io/tensor_case.h"
#include "bench/io/tune.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/utsname.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <memory>
#include <sstream>

namespace penstock::bench {
namespace {

constexpr std::uint64_t file_unit = 16U << 20;  // a multiple of each block
constexpr const char* tensors = "tensors";
constexpr const char* demand = "demand";

// As the command line gives it.
struct Arguments {
    IoBenchOptions options;
    std::string bytes = "2GiB";
    std::string cases, points, backend = auto_word, sustained_bytes;
    bool unregistered = false;
};

std::vector<std::string> split(const std::string& list) {
    std::vector<std::string> words;
    std::istringstream in(list);
    for (std::string word; std::getline(in, word, ',');) {
        if (!word.empty()) words.push_back(word);
    }
    return words;
}

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ExitCode::usage, what);
}

bool has_twins(std::vector<std::string> words) {
    std::sort(words.begin(), words.end());
    return std::adjacent_find(words.begin(), words.end()) != words.end();
}

std::vector<std::string> case_names() {
    std::vector<std::string> names = block_case_names();
    names.emplace_back(tensors);
    names.emplace_back(demand);
    return names;
}

std::optional<aio::BackendKind> parse_backend(const std::string& text) {
    const auto found = find_word<aio::BackendKind>(text);
    if (!found && text != auto_word)
        refuse(fmt::format("--backend {}: expected {}", text, auto_or_words_text<aio::BackendKind>()));
    return found;
}

IoBenchOptions checked(const Arguments& arguments) {
    IoBenchOptions options = arguments.options;
    options.bytes = byte_option(arguments.bytes, "--size") / file_unit * file_unit;
    if (options.bytes < 4 * file_unit) refuse(fmt::format("--size {}: expected 64MiB or more", arguments.bytes));
    if (options.rounds < 1 || options.rounds > 1000)
        refuse(fmt::format("--rounds {}: expected 1 to 1000", options.rounds));
    if (options.seconds && !(*options.seconds >= 0.05 && *options.seconds <= 3600))
        refuse(fmt::format("--seconds {}: expected 0.05 to 3600", *options.seconds));
    if (!(options.reader_bytes_per_second >= 1e6 && options.reader_bytes_per_second <= 1e12))
        refuse(fmt::format("--reader-rate {}: expected bytes per second from 1e6 to 1e12",
                           options.reader_bytes_per_second));
    const std::vector<std::string> known = case_names();
    options.cases = split(arguments.cases);
    for (const std::string& name : options.cases) {
        if (std::find(known.begin(), known.end(), name) == known.end())
            refuse(fmt::format("--cases {}: there are {}", name, fmt::join(known, ", ")));
    }
    if (has_twins(options.cases)) refuse(fmt::format("--cases {}: one of them stands twice", arguments.cases));
    if (options.cases.empty()) options.cases = known;
    std::vector<std::string> points;
    for (const std::string& point : split(arguments.points)) {
        options.points.push_back(parse_point(point));
        points.push_back(to_string(options.points.back()));
    }
    if (has_twins(points)) refuse(fmt::format("--points {}: one of them stands twice", arguments.points));
    options.backend = parse_backend(arguments.backend);
    if (arguments.unregistered) options.registration = zero::RingRegistration::none;
    if (!arguments.sustained_bytes.empty()) {
        if (!options.sustained) refuse("--sustained-bytes has no effect without --sustained");
        options.sustained_bytes = byte_option(arguments.sustained_bytes, "--sustained-bytes");
    }
    if ((options.tune || options.sustained) && !arguments.cases.empty())
        refuse("--cases has no effect with --tune or --sustained; leave it out");
    return options;
}

bool compares(const IoBenchOptions& options) {
    return !options.tune && !options.sustained;
}

// The largest moment: the bench's file and what a case makes beside it.
std::uint64_t needed_bytes(const IoBenchOptions& options) {
    std::uint64_t beside = options.tune || compares(options) ? options.bytes : 0;
    if (options.sustained) beside = std::max(beside, sustained_file_bytes(options));
    return options.bytes + beside;
}

// Of fio's jobs at their largest: its buffers, a page to align them, and the same again for a second job.
std::uint64_t huge_pages_needed(const IoBenchOptions& options) {
    std::uint64_t most = 16ULL << 20;  // of the demand case
    for (const std::string& name : options.cases) {
        if (name == tensors || name == demand) continue;
        for (const IoPoint& point : points_of(options, name))
            most = std::max(most, std::uint64_t{point.block_bytes} * point.depth);
    }
    return most / (2U << 20) + 4;
}

// What fio can be run with; the notes say what is missing.
std::vector<FioMemory> prepare_fio(Interruption& stop, Report& report, const HugePages2MiB& pages) {
    const std::optional<std::string> version = fio_version(stop);
    if (!version) {
        report.note("there is no fio here, so nothing is compared: apt-get install fio");
        return {};
    }
    report.fact("fio", *version);
    report.fact("CPU of fio", "its job's usr_cpu + sys_cpu; kernel workers are not in it");
    if (pages.enough()) return {FioMemory::huge_pages, FioMemory::usual};
    report.note(pages.note());
    return {FioMemory::usual};
}

void compare_all(IoBench& bench, const HugePages2MiB& pages) {
    bench.fio = prepare_fio(bench.stop, bench.report, pages);
    for (const std::string& name : bench.options.cases) {
        if (name == tensors) {
            run_tensor_case(bench);
        } else if (name == demand) {
            run_demand_case(bench);
        } else {
            run_block_case(bench, name);
        }
    }
}

// The directory's own profile, to go on from. One that is not understood is measured anew.
aio::DeviceProfile profile_before(IoBench& bench, const std::string& path) {
    try {
        std::vector<std::string> notes;
        const auto found = aio::find_profile(bench.options.directory, &notes);
        bench.note(notes);
        if (found && std::filesystem::equivalent(found->path, path)) return found->profile;
    } catch (const Error& error) {
        bench.note({fmt::format("the profile that was there is replaced: {}", error.what())});
    } catch (const std::filesystem::filesystem_error&) {  // there is none at `path`
    }
    return {};
}

std::string kernel() {
    utsname name = {};
    ::uname(&name);
    return fmt::format("{} {}", name.sysname, name.release);
}

void make_profile(IoBench& bench) {
    const std::string path = (std::filesystem::path(bench.options.directory) / aio::profile_name).string();
    aio::DeviceProfile profile = profile_before(bench, path);
    if (bench.options.tune) tune(bench, profile);
    if (bench.options.sustained) measure_sustained(bench, profile);
    profile.made = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    profile.machine = fmt::format("{}, {}", kernel(), file_system_of(bench.options.directory));
    write_profile(path, profile);
    bench.report.fact("profile", path);
}

void run_io(const Arguments& arguments, Report& report) {
    const IoBenchOptions options = checked(arguments);
    Interruption stop;
    std::vector<std::string> notes = check_bench_directory(options.directory, needed_bytes(options));
    const HugePages2MiB pages(compares(options) ? huge_pages_needed(options) : 0,
                              options.reserve_huge_pages ? HugePageReserve::raise : HugePageReserve::as_it_is);
    const BenchFile file(options.directory, "io", options.bytes);
    report.fact("directory", fmt::format("{} ({})", options.directory, file_system_of(options.directory)));
    report.fact("file",
                fmt::format("{}, {}", bytes_text(file.bytes()), file.file().direct() ? "direct" : "page cache"));
    report.fact("rounds",
                fmt::format("{} of {} s each, contenders taking turns", options.rounds, options.round_seconds()));
    report.fact("CPU of penstock",
                "user + system time of the whole process in the measured section, kernel workers "
                "of the ring included");
    IoBench bench{.options = options, .stop = stop, .report = report, .file = file, .fio = {}, .noted = {}};
    bench.note(notes);
    say_progress(fmt::format("writing {}, {}", file.path(), bytes_text(file.bytes())));
    fill(bench, file);
    if (compares(options)) {
        compare_all(bench, pages);
    } else {
        make_profile(bench);
    }
}

}  // namespace

BenchRun add_io_verb(CLI::App& app) {
    const auto arguments = std::make_shared<Arguments>();
    IoBenchOptions& options = arguments->options;
    CLI::App* verb = app.add_subcommand("io", "files on NVMe: reads, writes, tensors, demand reads, beside fio");
    verb->add_option("--dir", options.directory, "a directory on the device to measure")->required();
    verb->add_option("--size", arguments->bytes, "length of the temporary file (2GiB)");
    verb->add_option("--rounds", options.rounds, "rounds, contenders taking turns (5)");
    verb->add_option("--seconds", options.seconds, "of one contender in one round (2)");
    verb->add_option("--cases", arguments->cases, fmt::format("some of: {}", fmt::join(case_names(), ",")));
    verb->add_option("--points", arguments->points, "block and depth of the block cases, e.g. 1MiBx8,4MiBx4");
    verb->add_option("--backend", arguments->backend, auto_or_words_text<aio::BackendKind>());
    verb->add_flag("--unregistered", arguments->unregistered, "neither side registers memory and file with the ring");
    verb->add_option("--reader-rate", options.reader_bytes_per_second, "bytes per second of the demand reads (200e6)");
    verb->add_flag("--reserve-huge-pages", options.reserve_huge_pages,
                   "raise vm.nr_hugepages for fio's mmaphuge and set it back afterwards");
    verb->add_flag("--tune", options.tune, "find block size and bytes in flight; write the device's profile into DIR");
    verb->add_flag("--sustained", options.sustained, "write until the drive's cache runs out, into the profile");
    verb->add_option("--sustained-bytes", arguments->sustained_bytes, "length of that (32GiB, half of what is free)");
    return [arguments](Report& report) { run_io(*arguments, report); };
}

}  // namespace penstock::bench
