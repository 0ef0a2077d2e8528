#include "trainer/plan/run_plan.h"

#include "aio/words/error.h"
#include "trainer/config/io_settings.h"
#include "trainer/models/gpt.h"
#include "trainer/plan/lightest.h"
#include "trainer/ranks/rank_rules.h"
#include "trainer/start/torch_settings.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace penstock::trainer {
namespace {

PlannedWay way_of(TrainConfig config, const zero::MachineRoom& room, std::vector<std::string> changes) {
    PlannedWay way{
        .changes = std::move(changes), .config = std::move(config), .plan = {}, .forecast = {}, .kept = {}, .away = {}};
    way.plan = std::make_unique<zero::SessionPlan>(model_of(way.config), planned_options(way.config.session, room),
                                                   room, partition_of(way.config));
    return way;
}

void add_activations(PlannedWay& way, std::span<const std::uint64_t> graph_bytes, std::uint64_t room_bytes = 0) {
    way.kept = kept_graphs(way.config, graph_bytes, room_bytes);
    way.away = away_bytes(way.config, way.kept);
}

// By a generator of its own: a run that is planned draws what it would have drawn.
engine::Bundle tokens_of(const TrainConfig& config) {
    at::Generator generator = at::detail::createCPUGenerator(1);
    const at::Tensor tokens =
        at::randint(config.model.vocabulary, {config.micro_batch_rows, config.model.context}, generator, at::kLong);
    return {{"tokens", tokens}, {"targets", tokens.flip(1).contiguous()}};
}

MeasuredUnits units_of(const PlannedWay& way, const PlanQuestion& question) {
    const std::unique_ptr<engine::Model> model = make_gpt(way.config.model);
    const auto telling = [&](const std::string& unit) { question.telling(fmt::format("unit '{}'", unit)); };
    return measure_units({.model = model.get(),
                          .input = tokens_of(way.config),
                          .micro_batches = static_cast<std::uint64_t>(way.config.micro_batches),
                          .weights = way.plan->format.codec->weights,
                          .gradients = way.plan->options.gradient_type,
                          .seconds = question.seconds,
                          .at = telling});
}

Measurements measure(const PlannedWay& way, const PlanQuestion& question) {
    at::set_num_threads(static_cast<int>(way.plan->options.worker_threads));
    tell_torch(way.config.compute, way.config.session.device.kind);
    Measurements measured;
    const IoSettings io = io_settings(way.config);
    measured.rates = zero::measure_machine(
        *way.plan, {.limits = io.limits,
                    .seconds = question.seconds,
                    .hashed_apart = hash_threads_for(io, way.plan->options.worker_threads, way.plan->room.cores) > 0,
                    .telling = question.telling});
    measured.units = units_of(way, question);
    return measured;
}

// What graphs find beside the pool, units' inputs and the call that takes most: as engine::GraphKeeper does, once each
// unit has run.
std::uint64_t room_for_graphs(const PlannedWay& way, const Measurements& measured) {
    const std::uint64_t others =
        way.plan->memory.budget.used_bytes() + input_bytes_of_step(way.config) + measured.units.call_bytes;
    const std::uint64_t available = way.plan->room.host.available_bytes;
    return available - std::min(available, others);
}

// Now that units are known.
void make_forecast(PlannedWay& way, const Measurements& measured) {
    add_activations(way, measured.units.graph_bytes, room_for_graphs(way, measured));
    zero::MeasuredCompute compute;
    for (std::size_t unit = 0; unit < measured.units.recomputed.size(); ++unit)
        compute.units.push_back(unit < way.kept.first ? measured.units.recomputed[unit] : measured.units.kept[unit]);
    compute.laid = laid_aside(way.config, way.kept).items;
    way.forecast = zero::forecast_of(*way.plan, measured.rates, compute);
}

std::vector<std::string> keeping_all_weights(const PlannedWay& way) {
    std::uint64_t weights = 0;
    for (std::uint32_t unit = 0; unit < way.plan->layout.unit_count(); ++unit)
        weights += way.plan->layout.shard(unit).bytes;
    const std::uint64_t needed = way.plan->memory.budget.used_bytes() + weights;
    std::vector<std::string> changes = {"zero_optimization.offload_param.device=cpu"};
    if (needed > way.plan->options.host_budget_bytes)
        changes.push_back(fmt::format("memory.host_budget={}MiB", (way.plan->room.sharing * needed >> 20) + 1));
    return changes;
}

constexpr const char* keeping_graphs = "memory.activations=auto";
constexpr const char* share_left_open = "run.deferred_share=auto";

struct OrderWay {
    zero::UpdateOrder order;
    bool shares;  // with deferred units
};
constexpr std::array orders{OrderWay{zero::UpdateOrder::after_backward, false},
                            OrderWay{zero::UpdateOrder::deferred, false}, OrderWay{zero::UpdateOrder::within, false},
                            OrderWay{zero::UpdateOrder::within, true}};

// What changes no bit of the result: other places for weights or graphs that are kept, other orders of updates, and
// both.
std::vector<std::vector<std::string>> other_ways(const PlannedWay& way) {
    const engine::SessionOptions& session = way.config.session;
    std::vector<std::vector<std::string>> places = {{}};
    if (!session.fill_host_budget) places.push_back({"memory.fill_host_budget=true"});
    if (session.residency.weights == zero::Tier::nvme) places.push_back(keeping_all_weights(way));
    if (session.engine.activations == engine::Activations::recompute) places.push_back({keeping_graphs});
    std::vector<std::vector<std::string>> ways;
    for (const std::vector<std::string>& place : places)
        for (const auto& [order, shares] : orders) {
            std::vector<std::string> changes = place;
            if (order != session.update_order) changes.push_back(fmt::format("run.update_order={}", word_of(order)));
            if (shares != (session.deferred_share != 0.0))
                changes.push_back(shares ? share_left_open : "run.deferred_share=0");
            // With another share, too.
            if (!changes.empty() || (shares && !session.deferred_share)) ways.push_back(std::move(changes));
        }
    return ways;
}

// Nothing where it is not allowed, or does not fit.
std::optional<PlannedWay> possible_way(const ConfigSource& source, const zero::MachineRoom& room,
                                       std::vector<std::string> changes) {
    try {
        TrainConfig config = source.with(changes);
        PlannedWay way = way_of(std::move(config), room, std::move(changes));
        add_activations(way, {});
        return way;
    } catch (const Error&) {
        return std::nullopt;
    }
}

constexpr double clearly_faster = 0.99;  // of its seconds

// Of the shares that may be deferred the one that is clearly the fastest, unless one is given.
PlannedWay with_best_share(PlannedWay way, const ConfigSource& source, const Measurements& measured) {
    const engine::SessionOptions& session = way.config.session;
    if (session.update_order != zero::UpdateOrder::within || session.deferred_share) return way;
    std::vector<std::string> changes = way.changes;
    std::erase(changes, share_left_open);
    for (int tenths = 1; tenths < 10; ++tenths) {
        std::vector<std::string> with = changes;
        with.push_back(fmt::format("run.deferred_share=0.{}", tenths));
        std::optional<PlannedWay> other = possible_way(source, way.plan->room, std::move(with));
        if (!other) continue;
        make_forecast(*other, measured);
        if (other->forecast->seconds < clearly_faster * way.forecast->seconds) way = std::move(*other);
    }
    return way;
}

// Graphs lie beside the pool, and so do the inputs of the units that keep them.
bool graphs_fit(const PlannedWay& way) {
    const std::uint64_t beside =
        way.kept.bytes + input_bytes_of_step(way.config) - bytes_of(laid_aside(way.config, way.kept));
    return beside + way.plan->memory.budget.used_bytes() <= way.plan->room.host.available_bytes;
}

void add_others(RunPlan& plan, const ConfigSource& source) {
    const zero::MachineRoom& room = plan.way.plan->room;
    for (std::vector<std::string>& changes : other_ways(plan.way)) {
        const bool keeps = !changes.empty() && changes.front() == keeping_graphs;
        if (keeps && !plan.measured) continue;
        std::optional<PlannedWay> other = possible_way(source, room, std::move(changes));
        if (!other) continue;
        if (plan.measured) {
            make_forecast(*other, *plan.measured);
            other = with_best_share(std::move(*other), source, *plan.measured);
        }
        if (keeps && !graphs_fit(*other)) continue;
        if (!other->changes.empty()) plan.others.push_back(std::move(*other));
    }
    std::stable_sort(plan.others.begin(), plan.others.end(), [](const PlannedWay& a, const PlannedWay& b) {
        return a.forecast && b.forecast && a.forecast->seconds < b.forecast->seconds;
    });
}

PlannedWay fitting(const ConfigSource& source) {
    TrainConfig config = source.with({});
    zero::MachineRoom room = zero::MachineRoom::read(config.session.device);
    room.sharing = source.count.sharing();
    try {
        return way_of(std::move(config), room, {});
    } catch (const Error& error) {
        if (error.code() != ExitCode::does_not_fit) throw;
        throw Error(error.code(), fmt::format("{}\n{}", error.what(), lightest_settings(source, room)));
    }
}

}  // namespace

TrainConfig ConfigSource::with(const std::vector<std::string>& changes) const {
    std::vector<std::string> all = overrides;
    all.insert(all.end(), changes.begin(), changes.end());
    TrainConfig config = make_config(Settings::parse(text, file, all), count.ranks);
    fit_to_ranks(config, {});
    return config;
}

zero::ModelSpec model_of(const TrainConfig& config) {
    return {.units = make_gpt(config.model)->specs(), .optimizers = make_optimizers(config.optimizer)};
}

zero::Partition partition_of(const TrainConfig& config) {
    return zero::RankCount{.ranks = static_cast<std::uint32_t>(config.ranks)}.any();
}

zero::CoreOptions planned_options(const engine::SessionOptions& options, const zero::MachineRoom& room) {
    zero::CoreOptions core = engine::core_options(options);
    if (core.worker_threads == 0) core.worker_threads = room.cores;
    return core;
}

double RunPlan::bytes_per_parameter() const {
    return way.plan->step_bytes.mean(way.plan->options.durability) / static_cast<double>(trainable);
}

std::uint64_t RunPlan::activation_bytes() const {
    return way.kept.bytes + input_bytes_of_step(way.config);
}

bool RunPlan::graphs_are_known() const {
    return measured || way.config.session.engine.activations == engine::Activations::recompute;
}

zero::ToldStep RunPlan::step() const {
    return {.step = *way.forecast,
            .lanes = zero::lanes_of(*way.forecast, measured->rates.host_seconds(), measured->rates.device.rates),
            .order = way.plan->options.update_order,
            .tokens = static_cast<std::uint64_t>(way.config.tokens_per_step()),
            .endurance_bytes = endurance_bytes};
}

RunPlan make_run_plan(const PlanQuestion& question) {
    RunPlan plan{.way = fitting(question.source), .count = question.source.count};
    zero::check_node(*plan.way.plan, plan.count);
    add_activations(plan.way, {});
    plan.endurance_bytes = question.endurance_bytes;
    const zero::ParameterCount count = zero::count_parameters(plan.way.plan->model.units);
    plan.parameters = count.all;
    plan.trainable = count.trainable;
    if (plan.count.ranks > 1)
        plan.unmeasured =
            "its time is not forecast: how long ranks wait for each other's weights and gradients is not known here "
            "(`penstock-bench ranks` measures how fast they come)";
    else if (plan.way.config.session.device.kind != zero::DeviceKind::cpu)
        plan.unmeasured = "times of a device with memory of its own are not forecast";
    else if (!question.measured)
        plan.unmeasured = "nothing was measured";
    else
        plan.measured = measure(plan.way, question);
    if (plan.measured) make_forecast(plan.way, *plan.measured);
    if (plan.count.ranks == 1) add_others(plan, question.source);
    return plan;
}

}  // namespace penstock::trainer
