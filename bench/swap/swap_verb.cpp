// penstock bench swap: what hashes, slots and commits cost beside the same transfers without them.
#include "aio/words/byte_count.h"
#include "aio/words/error.h"
#include "bench/harness/byte_option.h"
#include "bench/harness/interruption.h"
#include "bench/harness/verbs.h"
#include "bench/harness/word_option.h"
#include "bench/swap/null_rounds.h"
#include "bench/swap/swap_rounds.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <memory>

namespace penstock::bench {
namespace {

constexpr std::uint64_t most_null_bytes = 1ULL << 40;

struct VerbOptions {
    SwapBenchOptions bench;
    std::string backend = auto_word;
    bool null = false;
    std::uint64_t null_rate = 0;              // bytes per second
    std::uint64_t null_bytes = 128ULL << 20;  // more than most caches hold
};

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ExitCode::usage, what);
}

void check(const SwapBenchOptions& options) {
    const SwapRigOptions& rig = options.rig;
    if (rig.tile_bytes < pool::granule_bytes || rig.tile_bytes > 256U << 20 ||
        rig.tile_bytes % pool::granule_bytes != 0)
        refuse(fmt::format("--tile {}: expected a multiple of {} up to 256MiB", rig.tile_bytes, pool::granule_bytes));
    if (rig.bytes < rig.tile_bytes * rig.tiles_on_their_way || rig.bytes > 1ULL << 44)
        refuse(fmt::format("--size {}: expected at least --tiles tiles, {} bytes, and at most 16TiB", rig.bytes,
                           rig.tile_bytes * rig.tiles_on_their_way));
    if (!(options.seconds >= 0.01 && options.seconds <= 3600))
        refuse(fmt::format("--seconds {}: expected 0.01 to 3600", options.seconds));
}

void run_swap(const VerbOptions& given, Report& report) {
    SwapBenchOptions options = given.bench;
    options.rig.backend = find_word<aio::BackendKind>(given.backend);  // none: auto
    check(options);
    Interruption stop;
    if (!given.null) return run_swap_bench(options, stop, report);
    NullBenchOptions null{.rig = {.directory = options.rig.directory,
                                  .tile_bytes = options.rig.tile_bytes,
                                  .device_bytes_per_second = static_cast<double>(given.null_rate)},
                          .rounds = options.rounds,
                          .seconds = options.seconds};
    const std::uint64_t tiles = std::min(given.null_bytes, most_null_bytes) / null.rig.tile_bytes;
    null.rig.tiles = static_cast<std::uint32_t>(
        round_up(std::max<std::uint64_t>(tiles, 1), std::uint64_t{null.rig.tiles_on_their_way}));
    run_null_bench(null, stop, report);
}

}  // namespace

BenchRun add_swap_verb(CLI::App& app) {
    const auto options = std::make_shared<VerbOptions>();
    SwapBenchOptions& bench = options->bench;
    CLI::App* verb =
        app.add_subcommand("swap", "the tensor store beside plain transfers: reads, writes, updates, commits");
    verb->add_option("--dir", bench.rig.directory, "a directory on the device; needs 4.5 times --size, leaves nothing")
        ->required();
    verb->add_option("--size", bench.rig.bytes, "bytes of the store's tensor, e.g. 1GiB")
        ->transform(bytes_of_text)
        ->capture_default_str();
    verb->add_option("--tile", bench.rig.tile_bytes, "bytes of one tile")
        ->transform(bytes_of_text)
        ->capture_default_str();
    verb->add_option("--tiles", bench.rig.tiles_on_their_way, "tiles in memory, on their way")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    verb->add_option("--rounds", bench.rounds, "rounds, store and plain file taking turns")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    verb->add_option("--seconds", bench.seconds, "of one side in one round")->capture_default_str();
    verb->add_option("--backend", options->backend, auto_or_words_text<aio::BackendKind>())
        ->check(CLI::IsMember(auto_or_words<aio::BackendKind>()))
        ->capture_default_str();
    verb->add_flag("--null", options->null,
                   "instead: what one driver's thread carries with hash, and with 1, 2 and 4 threads that hash for it, "
                   "on devices that take no time; of the options above --tile, --rounds and --seconds count");
    verb->add_option(
            "--null-memory", options->null_bytes,
            "bytes of the tiles of each of --null's stores; few stay in the caches, as what a drive brings may")
        ->transform(bytes_of_text)
        ->needs("--null");
    verb->add_option("--null-rate", options->null_rate,
                     "bytes that --null's device moves in a second, e.g. 7000000000; 0: it takes no time")
        ->transform(bytes_of_text)
        ->needs("--null");
    verb->footer("Example:\n  penstock bench swap --dir /nvme --json\n");
    return [options](Report& report) { run_swap(*options, report); };
}

}  // namespace penstock::bench
