#include "bench/swap/null_rounds.h"

#include "bench/harness/interruption.h"
#include "bench/harness/memory_work.h"
#include "bench/io/io_bench.h"
#include "zero_infinity/threads/usable_cores.h"
#include "zero_infinity/threads/workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <vector>

namespace penstock::bench {
namespace {

constexpr std::array<unsigned, 4> crews = {0, 1, 2, 4};
constexpr std::array<TileWork, 3> works = {TileWork::read, TileWork::write, TileWork::update};
constexpr std::uint64_t triad_numel = 8U << 20;
// What one driver must carry for an array of drives (issue 15), by hash threads.
const std::map<unsigned, Target> promised = {{1, {.at_least = 12, .aim = 20}}, {4, {.at_least = 30, .aim = 60}}};

std::string name_of(unsigned threads) {
    return threads == 0 ? "the driver's thread hashes"
                        : fmt::format("{} hash thread{}", threads, threads > 1 ? "s" : "");
}

Figure rate(std::string name) {
    return {.name = std::move(name), .unit = "GB/s", .rounds = {}};
}

// One store for each number of threads; all are there from the beginning, and take turns.
class NullRounds {
   public:
    NullRounds(const NullBenchOptions& options, Interruption& stop) : options_(options), stop_(stop) {
        for (const unsigned threads : crews) contenders_.push_back({threads, options.rig});
    }

    void measure(unsigned round) {
        say_progress(fmt::format("null devices: round {} of {}", round + 1, options_.rounds));
        for (std::size_t turn = 0; turn < crews.size(); ++turn)
            contenders_[contender(round, turn, crews.size())].measure(*this);
        stop_.check();
        measure_triad();
    }

    void report(Report& report) {
        for (const Contender& each : contenders_) {
            for (std::size_t i = 0; i < works.size(); ++i) report.add(each.rates[i]);
            report.add(each.alone);
            report.add(
                ratio(fmt::format("update ÷ hash alone: {}", name_of(each.threads)), each.rates.back(), each.alone));
            report.add(each.cpu);
        }
        report.add(triad_);
    }

   private:
    struct Contender {
        Contender(unsigned hash_threads, const NullRigOptions& options)
            : threads(hash_threads), rig(std::make_unique<NullRig>(options, hash_threads)) {
            for (std::size_t i = 0; i < works.size(); ++i)
                rates[i] = rate(fmt::format("{}: {}", to_string(works[i]), name_of(threads)));
            if (const auto found = promised.find(threads); found != promised.end()) rates.back().target = found->second;
            const unsigned hashing = std::max(threads, 1U);
            alone = rate(fmt::format("hash alone, as many threads: {}", name_of(threads)));
            alone_threads = hashing;
            cpu = {.name = fmt::format("update, CPU: {}", name_of(threads)), .unit = "s/GB", .rounds = {}};
        }
        void measure(const NullRounds& rounds) {
            for (std::size_t i = 0; i < works.size(); ++i) {
                rounds.stop_.check();
                const zero::Moved moved = rig->run(works[i], rounds.options_.seconds);
                rates[i].rounds.push_back(moved.gigabytes_per_second());
                if (works[i] == TileWork::update) cpu.rounds.push_back(moved.cpu_seconds_per_gigabyte());
            }
            alone.rounds.push_back(rig->hash(alone_threads, rounds.options_.seconds).gigabytes_per_second());
        }

        unsigned threads = 0;
        unsigned alone_threads = 1;
        std::unique_ptr<NullRig> rig;
        std::array<Figure, works.size()> rates;
        Figure alone;
        Figure cpu;
    };

    void measure_triad() {
        const zero::Stopwatch watch;
        std::uint64_t bytes = 0;
        do {
            triad_work_->step(workers_);
            bytes += triad_work_->bytes_of_step();
        } while (watch.seconds() < options_.seconds);
        triad_.rounds.push_back(watch.stop(bytes).gigabytes_per_second());
    }

    const NullBenchOptions& options_;
    Interruption& stop_;
    std::vector<Contender> contenders_;
    zero::Workers workers_{zero::UsableCores::read().count};
    std::unique_ptr<MemoryWork> triad_work_ = make_triad(triad_numel);
    Figure triad_ = rate("triad, all cores");
};

}  // namespace

void run_null_bench(const NullBenchOptions& options, Interruption& stop, Report& report) {
    const NullRigOptions& rig = options.rig;
    report.fact("tiles", fmt::format("{} of {}, {} on their way", rig.tiles, bytes_text(rig.tile_bytes),
                                     rig.tiles_on_their_way));
    report.fact("device", fmt::format("null: moves nothing, memory holds what was written; takes {}",
                                      rig.device_bytes_per_second > 0 ? fmt::format("as long as one of {:.3g} GB/s",
                                                                                    rig.device_bytes_per_second / 1e9)
                                                                      : std::string("no time")));
    report.fact("cores", fmt::format("{}", zero::UsableCores::read().count));
    report.fact("rounds", fmt::format("{} of {} s a figure, in turns", options.rounds, options.seconds));
    NullRounds rounds(options, stop);
    for (unsigned round = 0; round < options.rounds; ++round) rounds.measure(round);
    rounds.report(report);
    report.note(
        "hash alone: the same memory, as many threads as hash there, nothing around it; more threads than cores "
        "add nothing.");
}

}  // namespace penstock::bench
