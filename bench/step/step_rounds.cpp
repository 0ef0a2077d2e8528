#include "bench/step/step_rounds.h"

#include "bench/harness/bench_file.h"
#include "bench/harness/interruption.h"
#include "bench/io/io_bench.h"
#include "bench/step/device_rates.h"
#include "bench/step/step_ideal.h"
#include "zero_infinity/measure/measured_host.h"
#include "zero_infinity/plan/core_options.h"
#include "zero_infinity/threads/usable_cores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock::bench {
namespace {

constexpr std::uint64_t rates_file_bytes = 512ULL << 20;
constexpr double most_durable_bytes = 0x1p32;
constexpr double hash_seconds = 0.1;
// Of the order that is fastest here (issue 15).
constexpr Target promised{.at_least = 0.90, .aim = 0.95};

// What each round measured of one order of updates.
struct OrderRounds {
    StepWay way;
    std::vector<StepTurn> turns;
    std::vector<double> planned;  // seconds; empty where no step is forecast
};

// The device, the same engine in host memory.
struct Ground {
    DeviceRates rates;
    zero::Contention contention;
    StepTurn in_host_memory;
    double hash_per_byte = 0;
    double durable_rate = 0;  // 0: a step writes nothing
};

double hash_per_byte() {
    const zero::MeasuringMemory memory(zero::beyond_caches_bytes);
    return zero::hash_seconds_per_byte(memory.bytes(), hash_seconds);
}

class StepRounds {
   public:
    StepRounds(const StepBenchOptions& options, Interruption& stop, Report& report)
        : options_(options),
          report_(report),
          rates_(options.directory, "rates", rates_file_bytes, stop),
          runs_(options, stop) {
        for (const StepWay way : options.orders.empty() ? allowed() : options.orders)
            orders_.push_back({.way = way, .turns = {}, .planned = {}});
        cores_ = static_cast<double>(zero::UsableCores::read().count);
        const double written = most_written();
        // What is taken and not yet durable differs with what is written.
        if (written > 0)
            durable_.emplace(options.directory, "durable",
                             static_cast<std::uint64_t>(std::clamp(written, 0x1p20, most_durable_bytes)), stop);
    }

    void measure();
    void tell();
    const StepRuns& runs() const noexcept { return runs_; }
    const std::vector<std::string>& notes() const noexcept { return rates_.notes(); }

   private:
    std::vector<StepWay> allowed() const;
    Figure figure(const std::string& name, const std::string& unit, const OrderRounds& order,
                  double StepTurn::*member) const;
    Figure of_ground(const std::string& name, const std::string& unit, double (*value)(const Ground&)) const;
    StepTraffic traffic(StepWay way) const;
    double most_written() const;  // bytes of a step, in the order that writes most
    std::vector<StepPhase> phases(const OrderRounds& order, std::size_t round) const;
    Figure ideal(const OrderRounds& order, const std::string& name,
                 double (*seconds)(std::span<const StepPhase>, const Ground&)) const;
    void tell_ground();
    void tell(const OrderRounds& order, bool fastest);

    const StepBenchOptions& options_;
    Report& report_;
    DeviceRatesRig rates_;
    StepRuns runs_;
    std::optional<DeviceRatesRig> durable_;
    std::vector<OrderRounds> orders_;
    std::vector<Ground> ground_;
    double cores_ = 1;
};

std::vector<StepWay> StepRounds::allowed() const {
    std::vector<StepWay> ways;
    for (const auto& way : words_of(StepWay{})) {
        engine::SessionOptions session = runs_.config().session;
        session.update_order = order_of(way.value);
        session.deferred_share = 0;
        if (zero::refusal_of_order(engine::core_options(session)).empty()) ways.push_back(way.value);
    }
    return ways;
}

void StepRounds::measure() {
    for (unsigned round = 0; round < options_.rounds; ++round) {
        const DeviceRates rates = rates_.measure(options_.seconds);
        ground_.push_back({.rates = rates,
                           .contention = rates_.contention(4 * options_.seconds, static_cast<unsigned>(cores_), rates),
                           .hash_per_byte = hash_per_byte() / cores_,
                           .durable_rate = durable_ ? durable_->durable_rate() : 0});
        for (std::size_t turn = 0; turn <= orders_.size(); ++turn) {
            const std::size_t who = contender(round, turn, orders_.size() + 1);
            const bool in_memory = who == orders_.size();
            say_progress(fmt::format("round {} of {}: {}", round + 1, options_.rounds,
                                     in_memory ? "all in host memory" : word_of(orders_[who].way)));
            if (in_memory) {
                ground_.back().in_host_memory = runs_.turn_in_host_memory();
                continue;
            }
            if (const auto seconds = runs_.planned_seconds(orders_[who].way)) orders_[who].planned.push_back(*seconds);
            orders_[who].turns.push_back(runs_.turn(orders_[who].way));
        }
    }
}

Figure StepRounds::figure(const std::string& name, const std::string& unit, const OrderRounds& order,
                          double StepTurn::*member) const {
    Figure figure{.name = fmt::format("{}: {}", word_of(order.way), name), .unit = unit, .rounds = {}};
    for (const StepTurn& turn : order.turns) figure.rounds.push_back(turn.*member);
    return figure;
}

Figure StepRounds::of_ground(const std::string& name, const std::string& unit, double (*value)(const Ground&)) const {
    Figure figure{.name = name, .unit = unit, .rounds = {}};
    for (const Ground& ground : ground_) figure.rounds.push_back(value(ground));
    return figure;
}

StepTraffic StepRounds::traffic(StepWay way) const {
    const engine::SessionOptions& session = runs_.config().session;
    const double balanced = zero::balanced_share(runs_.format(), session.durability, session.residency,
                                                 engine::core_options(session).forward_part);
    const double said = session.deferred_share.value_or(0);
    const double deferred = said > 0 ? said : balanced;
    return traffic_of(runs_.format(), session.durability, session.residency, way, runs_.trainable_numel(), deferred);
}

double StepRounds::most_written() const {
    double most = 0;
    for (const OrderRounds& each : orders_) most = std::max(most, traffic(each.way).write);
    return most;
}

std::vector<StepPhase> StepRounds::phases(const OrderRounds& order, std::size_t round) const {
    const StepTurn& memory = ground_[round].in_host_memory;
    const StepCompute compute{.forward = memory.forward,
                              .backward = memory.backward,
                              .update = memory.update,
                              .rest = std::max(0.0, memory.seconds - memory.forward - memory.backward - memory.update),
                              .hash_per_byte = ground_[round].hash_per_byte};
    return phases_of(order.way, compute, traffic(order.way), order.turns[round].updated_again);
}

Figure StepRounds::ideal(const OrderRounds& order, const std::string& name,
                         double (*seconds)(std::span<const StepPhase>, const Ground&)) const {
    Figure figure{.name = fmt::format("{}: {}", word_of(order.way), name), .unit = "s", .rounds = {}};
    for (std::size_t round = 0; round < ground_.size(); ++round)
        figure.rounds.push_back(seconds(phases(order, round), ground_[round]));
    return figure;
}

void StepRounds::tell_ground() {
    const auto add = [&](const std::string& name, const std::string& unit, double (*value)(const Ground&)) {
        report_.add(of_ground(name, unit, value));
    };
    add("device: reads", "GB/s", [](const Ground& ground) { return ground.rates.read / 1e9; });
    add("device: writes", "GB/s", [](const Ground& ground) { return ground.rates.write / 1e9; });
    add("device: both, half each", "GB/s", [](const Ground& ground) { return ground.rates.both / 1e9; });
    if (durable_)
        add("device: writes made durable", "GB/s", [](const Ground& ground) { return ground.durable_rate / 1e9; });
    add("device: kept beside compute", "", [](const Ground& ground) { return ground.contention.device; });
    add("compute: kept beside the device", "", [](const Ground& ground) { return ground.contention.compute; });
    add("hash of tiles, all cores", "GB/s", [](const Ground& ground) { return 1e-9 / ground.hash_per_byte; });
    add("all in host memory: step", "s", [](const Ground& ground) { return ground.in_host_memory.seconds; });
    add("all in host memory: forward", "s", [](const Ground& ground) { return ground.in_host_memory.forward; });
    add("all in host memory: backward", "s", [](const Ground& ground) { return ground.in_host_memory.backward; });
    add("all in host memory: update", "s", [](const Ground& ground) { return ground.in_host_memory.update; });
}

void StepRounds::tell(const OrderRounds& order, bool fastest) {
    const std::string name(word_of(order.way));
    const Figure step = figure("step", "s", order, &StepTurn::seconds);
    using Phases = std::span<const StepPhase>;
    const Figure phase_by_phase = ideal(order, "ideal, phase by phase", [](Phases phases, const Ground& ground) {
        return ideal_seconds(phases, ground.rates);
    });
    const Figure least = ideal(order, "ideal, all at once",
                               [](Phases phases, const Ground& ground) { return least_seconds(phases, ground.rates); });
    const Figure durable = ideal(order, "ideal, made durable", [](Phases phases, const Ground& ground) {
        return durable_seconds(phases, ground.rates, ground.durable_rate);
    });
    const Figure on_shared_cores = ideal(order, "ideal on shared cores", [](Phases phases, const Ground& ground) {
        return contended_seconds(phases, ground.rates, ground.contention);
    });
    Figure reached = ratio(fmt::format("{}: ideal ÷ step, phase by phase", name), phase_by_phase, step);
    if (fastest) reached.target = promised;
    report_.add(step);
    for (const auto& [what, member] :
         {std::pair{"forward", &StepTurn::forward}, {"backward", &StepTurn::backward}, {"update", &StepTurn::update}})
        report_.add(figure(what, "s", order, member));
    report_.add(phase_by_phase);
    report_.add(std::move(reached));
    report_.add(ratio(fmt::format("{}: ideal ÷ step, all at once", name), least, step));
    if (durable_) report_.add(ratio(fmt::format("{}: ideal, made durable ÷ step", name), durable, step));
    report_.add(ratio(fmt::format("{}: ideal on shared cores ÷ step", name), on_shared_cores, step));
    report_.add(
        ratio(fmt::format("{}: step ÷ all in host memory", name), step, *report_.find("all in host memory: step")));
    if (order.planned.size() == order.turns.size()) {
        const Figure planned{
            .name = fmt::format("{}: planned step", name), .unit = "s", .rounds = order.planned, .target = {}};
        report_.add(planned);
        report_.add(ratio(fmt::format("{}: planned step ÷ step", name), planned, step));
    }
    Figure bytes{.name = fmt::format("{}: NVMe", name), .unit = "bytes/parameter", .rounds = {}};
    for (const StepTurn& turn : order.turns)
        bytes.rounds.push_back((turn.read_bytes + turn.write_bytes) / runs_.trainable_numel());
    report_.add(std::move(bytes));
    Figure memory = figure("peak RSS", "GiB", order, &StepTurn::peak_rss_bytes);
    for (double& each : memory.rounds) each /= 0x1p30;
    report_.add(std::move(memory));
    if (order_of(order.way) == zero::UpdateOrder::within && runs_.config().session.engine.gradient_clipping > 0)
        report_.add(figure("steps updated again", "", order, &StepTurn::updated_again));
}

void StepRounds::tell() {
    tell_ground();
    const auto median = [&](const OrderRounds& order) { return figure("", "", order, &StepTurn::seconds).median(); };
    const auto fastest =
        std::min_element(orders_.begin(), orders_.end(),
                         [&](const OrderRounds& a, const OrderRounds& b) { return median(a) < median(b); });
    for (auto order = orders_.begin(); order != orders_.end(); ++order) tell(*order, order == fastest);
}

}  // namespace

void run_step_bench(const StepBenchOptions& options, Interruption& stop, Report& report) {
    for (const std::string& line : check_bench_directory(options.directory, rates_file_bytes)) report.note(line);
    report.fact("directory", fmt::format("{} ({})", options.directory, file_system_of(options.directory)));
    say_progress("making the store");
    StepRounds rounds(options, stop, report);
    const StepRuns& runs = rounds.runs();
    const trainer::TrainConfig& config = runs.config();
    report.fact("model", fmt::format("GPT, {} layers of {}, {:.1f} million trainable parameters, {} tokens a step",
                                     config.model.layers, config.model.hidden, runs.trainable_numel() / 1e6,
                                     config.tokens_per_step()));
    report.fact("states",
                fmt::format("codec {}, weights on {}, states on {}, a commit every {} steps", config.session.codec,
                            word_of(config.session.residency.weights), word_of(config.session.residency.states),
                            config.session.durability.commit_steps));
    report.fact("rounds", fmt::format("{} of {} steps a turn, after {} that are not counted; the medians of a turn; "
                                      "contenders taking turns on one store",
                                      options.rounds, options.steps, options.warm_up));
    report.fact("ideal",
                "of each phase the longer of its compute (of the same engine in host memory, and the hash of what "
                "moves) and its transfers at the device's rates of that round");
    if (config.session.device.kind == zero::DeviceKind::cuda) {
        report.note(
            "forward, backward and update are where the host waits: it gives the GPU its work and goes on; compare "
            "whole steps, and 'ideal ÷ step, all at once'");
    }
    report.command(runs.command());
    for (const std::string& line : rounds.notes()) report.note(line);
    rounds.measure();
    rounds.tell();
}

}  // namespace penstock::bench
