#include "bench/optimizer/optimizer_rounds.h"

#include "aio/words/error.h"
#include "bench/harness/interruption.h"
#include "bench/io/io_bench.h"
#include "bench/optimizer/torch_optimizer.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace penstock::bench {
namespace {

constexpr const char* triad = "triad";
constexpr const char* triad_in_place = "triad in place";
constexpr const char* adamw = "adamw";
constexpr const char* split_with_the_same_gradient = "adamw in split, fp32 gradient";

// After one step that is not counted.
double seconds_per_step(MemoryWork& work, zero::Workers& workers, double seconds) {
    work.step(workers);
    const zero::Stopwatch watch;
    double steps = 0;
    double elapsed = 0;
    while (steps == 0 || elapsed < seconds) {
        work.step(workers);
        ++steps;
        elapsed = watch.seconds();
    }
    return elapsed / steps;
}

}  // namespace

const char* const how_optimizer_bytes_are_counted =
    "GB/s: what a step reads and writes of its arrays, each once. Per element: AdamW and Adam on fp32 28 bytes "
    "(parameter "
    "and two moments read and written, gradient read), SGD, Lion and Adagrad 20; AdamW in split 28 with an fp32 and 26 "
    "with a bf16 gradient, in compact 12.25. Triad (a = b + s * c of fp32) counts 12, as STREAM does, although the "
    "processor reads a's line as well; triad in place (b = b + s * c) moves the 12 that it counts.";

std::vector<OptimizerContender> make_optimizer_contenders(std::uint64_t numel) {
    std::vector<OptimizerContender> all;
    all.push_back({triad, make_triad(numel)});
    all.push_back({triad_in_place, make_triad_in_place(numel)});
    all.push_back({adamw, make_plain_update(zero::make_adamw({}), numel)});
    all.push_back({"adam", make_plain_update(zero::make_adam({}), numel)});
    all.push_back({"sgd with momentum", make_plain_update(zero::make_sgd({.momentum = 0.9}), numel)});
    all.push_back({"lion", make_plain_update(zero::make_lion({}), numel)});
    all.push_back({"adagrad", make_plain_update(zero::make_adagrad({}), numel)});
    const auto in_codec = [&](const char* name, const zero::Codec& codec, zero::PlaneType gradient) {
        all.push_back({name, make_tile_update(codec, gradient, zero::make_adamw({}), numel)});
    };
    in_codec(split_with_the_same_gradient, zero::split_codec(), zero::PlaneType::fp32);
    in_codec("adamw in split, bf16 gradient", zero::split_codec(), zero::PlaneType::bf16);
    in_codec("adamw in compact, bf16 gradient", zero::compact_codec(), zero::PlaneType::bf16);
    if (const std::string name = torch_optimizer_name(); !name.empty()) all.push_back({name, make_torch_adamw(numel)});
    return all;
}

std::uint64_t optimizer_contenders_bytes(std::uint64_t numel) {
    // Triads 12 and 8; AdamW, Adam and torch's 16 each, the others 12 each; 16 at most for each codec.
    return numel * (12 + 8 + 3 * 16 + 3 * 12 + 3 * 16);
}

OptimizerRounds::OptimizerRounds(const OptimizerRoundsOptions& options, std::vector<OptimizerContender>& contenders,
                                 unsigned threads)
    : options_(options),
      contenders_(contenders),
      workers_(threads),
      threads_(fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s")) {
    for (const OptimizerContender& one : contenders)
        ours_.push_back({.name = one.name, .bytes_of_step = one.work->bytes_of_step(), .seconds = {}});
}

void OptimizerRounds::measure(Interruption& stop) {
    const std::size_t peers = contenders_.size();  // their number among the contenders
    const std::size_t count = peers + (options_.python.empty() ? 0 : 1);
    const PeerRequest request{.numel = options_.numel, .threads = workers_.thread_count(), .seconds = options_.seconds};
    for (std::size_t round = 0; round < options_.rounds; ++round) {
        say_progress(fmt::format("optimizer{}: round {} of {}", threads_, round + 1, options_.rounds));
        for (std::size_t turn = 0; turn < count; ++turn) {
            stop.check();
            const std::size_t who = contender(round, turn, count);
            if (who == peers) {
                add_peers(time_peers(options_.python, request, stop));
            } else {
                ours_[who].seconds.push_back(seconds_per_step(*contenders_[who].work, workers_, options_.seconds));
            }
        }
    }
}

void OptimizerRounds::add_peers(const PeerTimes& times) {
    if (peers_.empty()) {
        for (const PeerTime& peer : times.peers)
            peers_.push_back({.name = peer.name, .bytes_of_step = find(adamw).bytes_of_step, .seconds = {}});
        notes_ = times.notes;
    }
    const bool same = std::equal(peers_.begin(), peers_.end(), times.peers.begin(), times.peers.end(),
                                 [](const Timing& one, const PeerTime& peer) { return one.name == peer.name; });
    if (!same) throw Error(ExitCode::internal, "the peers of one round are not those of the first round");
    for (std::size_t i = 0; i < peers_.size(); ++i) peers_[i].seconds.push_back(times.peers[i].seconds_per_step);
}

void OptimizerRounds::report(Report& report) const {
    for (const auto* side : {&ours_, &peers_}) {
        for (const Timing& one : *side) report.add(rate(one));
    }
    // Against both triads: the one is STREAM's, the other moves its bytes as an update does, which is harder.
    for (const char* yardstick : {triad, triad_in_place}) {
        for (const Timing& one : ours_) {
            if (one.name == triad || one.name == triad_in_place || one.name == torch_optimizer_name()) continue;
            Figure share =
                ratio(fmt::format("{} ÷ {}{}", one.name, yardstick, threads_), rate(one), rate(find(yardstick)));
            if (one.name == adamw) share.target = Target{.at_least = 0.75, .aim = 0.85};
            report.add(std::move(share));
        }
    }
    for (const Timing& one : ours_) {
        if (!one.name.starts_with("adamw in ")) continue;
        Figure time = time_ratio(one, find(adamw));
        if (one.name == split_with_the_same_gradient)
            time.target = Target{.at_least = 1.1, .aim = 1.0, .better = Target::Better::lower};
        report.add(std::move(time));
    }
    compare_with_others(report);
    for (const std::string& line : notes_) report.note(line + threads_);
}

// Faster than the others by a tenth, or at the speed of memory, where nobody can be.
void OptimizerRounds::compare_with_others(Report& report) const {
    std::vector<Timing> others = peers_;
    std::copy_if(ours_.begin(), ours_.end(), std::back_inserter(others),
                 [](const Timing& one) { return one.name == torch_optimizer_name(); });
    if (others.empty()) return;
    const double share = ratio("", rate(find(adamw)), rate(find(triad))).median();
    const bool at_memory = share >= 0.85;
    for (const Timing& other : others) {
        Figure time = time_ratio(find(adamw), other);
        if (!at_memory)  // 1/1.1 and 1/1.3
            time.target = Target{.at_least = 0.909, .aim = 0.769, .better = Target::Better::lower};
        report.add(std::move(time));
    }
    if (at_memory)
        report.note(
            fmt::format("adamw moves {:.2f} of a triad's bytes{}, so its time ÷ the others' has no target: the "
                        "promise is a tenth less time, or 0.85 of the triad",
                        share, threads_));
}

const OptimizerRounds::Timing& OptimizerRounds::find(const char* name) const {
    return *std::find_if(ours_.begin(), ours_.end(), [&](const Timing& one) { return one.name == name; });
}

Figure OptimizerRounds::rate(const Timing& timing) const {
    Figure figure{.name = timing.name + threads_, .unit = "GB/s", .rounds = {}, .target = {}};
    for (const double one : timing.seconds)
        figure.rounds.push_back(static_cast<double>(timing.bytes_of_step) / 1e9 / one);
    return figure;
}

Figure OptimizerRounds::time_ratio(const Timing& above, const Timing& below) const {
    const auto time = [](const Timing& timing) {
        return Figure{.name = timing.name, .unit = "s", .rounds = timing.seconds, .target = {}};
    };
    return ratio(fmt::format("time of {} ÷ {}{}", above.name, below.name, threads_), time(above), time(below));
}

}  // namespace penstock::bench
