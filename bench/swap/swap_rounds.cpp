#include "bench/swap/swap_rounds.h"

#include "aio/words/check.h"
#include "bench/harness/bench_file.h"
#include "bench/harness/interruption.h"
#include "bench/io/io_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::bench {
namespace {

constexpr double hash_seconds = 0.25;
constexpr std::uint64_t created_share = 4;  // of --size: what each round creates anew
// A store must not cost more than this of what aio moves (issue 5).
constexpr Target promised{.at_least = 0.95, .aim = 1.0};
constexpr Target promised_of_verify{.at_least = 0.9, .aim = 1.0};

const char* name_of(Side side) {
    return side == Side::store ? "store" : "plain file";
}

// One side's figures of one kind of work.
struct SideFigures {
    Figure rate;
    Figure cpu;
};

SideFigures empty_figures(TileWork work, Side side) {
    return {
        .rate = {.name = fmt::format("{}: {}", to_string(work), name_of(side)), .unit = "GB/s", .rounds = {}},
        .cpu = {.name = fmt::format("{}: CPU of {}", to_string(work), name_of(side)), .unit = "s/GB", .rounds = {}}};
}

class Rounds {
   public:
    Rounds(const SwapBenchOptions& options, Interruption& stop, Report& report)
        : options_(options), stop_(stop), report_(report), rig_(options.rig, stop) {}

    void measure() {
        for (const TileWork work : {TileWork::write, TileWork::read, TileWork::update, TileWork::verify}) compare(work);
        measure_commits();
        measure_rest();
    }
    const SwapRig& rig() const noexcept { return rig_; }

   private:
    void compare(TileWork work);
    void measure_side(TileWork work, Side side, SideFigures& figures);
    void measure_commits();
    void measure_rest();
    void say(const std::string& what, unsigned round) const {
        say_progress(fmt::format("{}: round {} of {}", what, round + 1, options_.rounds));
    }

    const SwapBenchOptions& options_;
    Interruption& stop_;
    Report& report_;
    SwapRig rig_;
    Figure commit_all_{.name = "commit after an update of all tiles: median", .unit = "ms", .rounds = {}};
    Figure commit_share_{.name = "commit's share of a step that rewrites all tiles", .unit = "", .rounds = {}};
};

// Whole passes until the time is over; what commits take is not in the rate.
void Rounds::measure_side(TileWork work, Side side, SideFigures& figures) {
    zero::Moved sum;
    std::vector<double> commits;
    do {
        stop_.check();
        const SwapPass pass = rig_.pass(side, work);
        sum.bytes += pass.moved.bytes;
        sum.seconds += pass.moved.seconds;
        sum.cpu_seconds += pass.moved.cpu_seconds;
        commits.push_back(pass.commit_seconds);
    } while (sum.seconds < options_.seconds);
    figures.rate.rounds.push_back(sum.gigabytes_per_second());
    figures.cpu.rounds.push_back(sum.cpu_seconds_per_gigabyte());
    if (work != TileWork::update || side != Side::store) return;
    double committing = 0;
    for (const double seconds : commits) committing += seconds;
    commit_all_.rounds.push_back(percentile(commits, 0.5) * 1e3);
    commit_share_.rounds.push_back(committing / (committing + sum.seconds));
}

void Rounds::compare(TileWork work) {
    SideFigures store = empty_figures(work, Side::store);
    SideFigures plain = empty_figures(work, Side::plain);
    for (unsigned round = 0; round < options_.rounds; ++round) {
        say(to_string(work), round);
        for (const std::size_t turn : {0U, 1U}) {
            const Side side = contender(round, turn, 2) == 0 ? Side::store : Side::plain;
            measure_side(work, side, side == Side::store ? store : plain);
        }
    }
    Figure share = ratio(fmt::format("{}: store ÷ plain file", to_string(work)), store.rate, plain.rate);
    share.target = work == TileWork::verify ? promised_of_verify : promised;
    for (const Figure& figure : {store.rate, plain.rate, share, store.cpu, plain.cpu}) report_.add(figure);
}

void Rounds::measure_commits() {
    Figure median{.name = "commit after one tile: median", .unit = "ms", .rounds = {}};
    Figure p99{.name = "commit after one tile: p99", .unit = "ms", .rounds = {}};
    for (unsigned round = 0; round < options_.rounds; ++round) {
        say("commit", round);
        std::vector<double> seconds;
        const zero::Stopwatch watch;
        do {
            stop_.check();
            seconds.push_back(rig_.commit_one_tile());
        } while (watch.seconds() < options_.seconds);
        median.rounds.push_back(percentile(seconds, 0.5) * 1e3);
        p99.rounds.push_back(percentile(seconds, 0.99) * 1e3);
        if (seconds.size() < 100)
            report_.note(fmt::format("commit, round {}: {} commits, so that its p99 is the longest of them", round + 1,
                                     seconds.size()));
    }
    for (Figure& figure : std::vector{commit_all_, commit_share_, median, p99}) report_.add(std::move(figure));
}

void Rounds::measure_rest() {
    Figure creation{.name = "creation: pre-writing", .unit = "GB/s", .rounds = {}};
    Figure hash{.name = "hash of tiles, one thread", .unit = "GB/s", .rounds = {}};
    for (unsigned round = 0; round < options_.rounds; ++round) {
        say("creation", round);
        stop_.check();
        creation.rounds.push_back(
            rig_.create_another(std::max(options_.rig.bytes / created_share, options_.rig.tile_bytes))
                .gigabytes_per_second());
        hash.rounds.push_back(rig_.hash(std::min(options_.seconds, hash_seconds)).gigabytes_per_second());
    }
    report_.add(std::move(creation));
    report_.add(std::move(hash));
}

// Two slots of the store and of the plain file beside it, and the store that each round makes.
std::uint64_t needed_bytes(const SwapRigOptions& rig) {
    return 4 * rig.bytes + 2 * (rig.bytes / created_share + rig.tile_bytes) + (8U << 20);
}

}  // namespace

double percentile(std::vector<double> values, double share) {
    PENSTOCK_CHECK(!values.empty() && share > 0 && share <= 1, "{} of {} values", share, values.size());
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    const auto place = values.begin() + static_cast<std::ptrdiff_t>(std::max<std::size_t>(rank, 1) - 1);
    std::nth_element(values.begin(), place, values.end());
    return *place;
}

void run_swap_bench(const SwapBenchOptions& options, Interruption& stop, Report& report) {
    const SwapRigOptions& rig = options.rig;
    for (const std::string& line : check_bench_directory(rig.directory, needed_bytes(rig))) report.note(line);
    report.fact("directory", fmt::format("{} ({})", rig.directory, file_system_of(rig.directory)));
    say_progress(fmt::format("writing a store and a file of {} each, two slots", bytes_text(rig.bytes)));
    Rounds rounds(options, stop, report);
    report.fact("tiles", fmt::format("{} of {}, {} on their way", (rig.bytes - 1) / rig.tile_bytes + 1,
                                     bytes_text(rig.tile_bytes), rig.tiles_on_their_way));
    report.fact("files", rounds.rig().direct() ? "direct" : "page cache");
    report.fact("backend", rounds.rig().backend_name());
    report.fact("pool", fmt::format("{} bytes, {} of them in huge pages", rounds.rig().pool_bytes(),
                                    rounds.rig().huge_bytes()));
    report.fact("rounds",
                fmt::format("{} of {} s a side, whole passes over all tiles, store and plain file taking turns",
                            options.rounds, options.seconds));
    report.fact("plain file", "the same Io, memory, tiles and offsets, without hashes, slots' records and commits");
    report.fact("CPU", "user + system time of the whole process in the passes, kernel workers of the ring included");
    for (const std::string& line : rounds.rig().notes()) report.note(line);
    rounds.measure();
}

}  // namespace penstock::bench
