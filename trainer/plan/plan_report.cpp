#include "trainer/plan/plan_report.h"

#include "trainer/cli/step_record.h"
#include "zero_infinity/plan/ranks/zero_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <numeric>

namespace penstock::trainer {
namespace {

using nlohmann::ordered_json;
using zero::report_line;

constexpr std::size_t told_others = 4;
constexpr double worth_telling = 1.03;  // times faster

double giga(double bytes) {
    return bytes / 1e9;
}

std::string options_text(const PlannedWay& way, const PlannedWay& now) {
    const std::string graphs = way.kept.bytes > now.kept.bytes ? fmt::format(", which takes {} beside the pool",
                                                                             mebibytes(way.kept.bytes - now.kept.bytes))
                                                               : "";
    const bool hopes =
        way.config.session.update_order == zero::UpdateOrder::within && way.config.session.engine.gradient_clipping > 0;
    return fmt::format("--set {}{}{}", fmt::join(way.changes, " --set "), graphs,
                       hopes ? ", where no step is clipped" : "");
}

// Of the last unit none is kept: its backward follows at once.
std::uint32_t kept_units(const RunPlan& plan) {
    return plan.way.plan->layout.unit_count() - 1 - plan.way.kept.first;
}

std::string text_of_graphs(const RunPlan& plan) {
    const engine::Activations activations = plan.way.config.session.engine.activations;
    if (activations == engine::Activations::recompute) return "";
    if (!plan.graphs_are_known()) return ", and the graphs that are kept";
    if (kept_units(plan) == 0) return ", no graphs: every unit runs again in backward";
    return fmt::format(
        ", {} of them graphs{}", mebibytes(plan.way.kept.bytes),
        plan.way.kept.first == 0
            ? ", so that no unit runs twice"
            : fmt::format(" of the {} units nearest to the loss: the others run again in backward", kept_units(plan)));
}

std::string text_of_memory(const RunPlan& plan) {
    const std::uint64_t laid = bytes_of(laid_aside(plan.way.config, plan.way.kept));
    const std::string outside = mebibytes(plan.activation_bytes() - laid);
    std::string activations =
        laid == 0 ? fmt::format("the pool, exactly; and {} of activations for backward, outside of it", outside)
                  : fmt::format(
                        "the pool, exactly; with {} of activations for backward, {} of which go to NVMe and "
                        "come back, and {} outside of it",
                        mebibytes(laid), mebibytes(plan.way.away.out), outside);
    std::string text = report_line("memory", activations + text_of_graphs(plan));
    std::string table = plan.way.plan->memory.budget.table();
    if (!table.empty() && table.back() != '\n') table += '\n';
    return text + table;
}

// On disk, while it runs.
std::uint64_t spilled_bytes(const PlannedWay& way) {
    const std::vector<std::uint64_t> gradients = way.plan->leaving_gradients();
    return std::accumulate(gradients.begin(), gradients.end(), way.away.out);
}

std::string text_of_traffic(const RunPlan& plan) {
    const zero::StepBytes& bytes = plan.way.plan->step_bytes;
    const auto& options = plan.way.plan->options;
    std::string text = report_line(
        "NVMe", fmt::format("a store of {:.2f} GB in {}", giga(static_cast<double>(plan.way.plan->store_bytes())),
                            fmt::join(options.swap_directories, ", ")));
    if (const std::uint64_t spilled = spilled_bytes(plan.way); spilled > 0)
        text += report_line("", fmt::format("and {:.2f} GB of what leaves memory within a step beside it while it runs",
                                            giga(static_cast<double>(spilled))));
    std::string residents;
    if (bytes.resident_write > 0 && options.durability.commit_steps > 0)
        residents = fmt::format(", and {:.3f} GB more in each step that commits",
                                giga(static_cast<double>(bytes.resident_write)));
    const zero::ShelfBytes& away = plan.way.away;
    const std::string activations =
        away.out + away.in == 0 ? ""
                                : fmt::format("; of activations it reads {:.3f} GB and writes {:.3f} GB",
                                              giga(static_cast<double>(away.in)), giga(static_cast<double>(away.out)));
    return text +
           report_line("", fmt::format("each step reads {:.3f} GB and writes {:.3f} GB{}: {:.2f} bytes per trained "
                                       "parameter{}",
                                       giga(static_cast<double>(bytes.read)), giga(static_cast<double>(bytes.write)),
                                       residents, plan.bytes_per_parameter(), activations));
}

// Rates: docs/gpus.md.
std::string text_of_products(const RunPlan& plan) {
    const TrainConfig& config = plan.way.config;
    if (config.session.device.kind != zero::DeviceKind::cuda || config.settings.boolean("bf16.enabled")) return {};
    return report_line("products", config.compute.matmul == MatmulPrecision::highest
                                       ? "of fp32, with all 24 bits; by TF32, of 11, one H200 makes 357 TFLOP/s for "
                                         "50: --set run.matmul=high"
                                       : "of fp32 by TF32, whose factors have 11 bits for 24");
}

std::string text_of_ranks(const RunPlan& plan) {
    if (plan.count.ranks == 1) return {};
    const zero::SessionPlan& own = *plan.way.plan;
    return report_line("ranks", fmt::format("{}, of which any takes what is above", plan.count.ranks)) +
           zero::ranks_table(own, plan.count, plan.passes(), zero::free_bytes_of(own.options.swap_directories));
}

std::string text_of_others(const RunPlan& plan) {
    std::string text;
    std::size_t told = 0;
    for (const PlannedWay& other : plan.others) {
        const double ratio = plan.way.forecast->seconds / other.forecast->seconds;
        if (ratio < worth_telling || told++ == told_others) break;
        text += report_line(
            text.empty() ? "faster" : "",
            fmt::format("{:.3f} s ({:.2f}x) with {}", other.forecast->seconds, ratio, options_text(other, plan.way)));
    }
    return text.empty()
               ? report_line("faster", "no other order of updates, place of weights or kept graphs that fit here")
               : text;
}

ordered_json json_of(const zero::StepForecast& step) {
    return {{"seconds", step.seconds},
            {"forward_s", step.forward},
            {"backward_s", step.backward},
            {"update_s", step.update},
            {"commit_s", step.commit},
            {"wait_weights_s", step.wait_weights},
            {"wait_tiles_s", step.wait_tiles},
            {"wait_spill_s", step.wait_spills},
            {"lanes",
             {{"compute_s", step.compute},
              {"update_s", step.updating},
              {"nvme_read_s", step.reading},
              {"nvme_write_s", step.writing},
              {"driver_s", step.driver},
              {"lost_s", step.lost}}},
            {"nvme_read_bytes", step.read_bytes},
            {"nvme_write_bytes", step.write_bytes}};
}

ordered_json json_of(const zero::MachineRates& rates) {
    return {{"read_bytes_per_s", rates.device.rates.read},
            {"write_bytes_per_s", rates.device.rates.write},
            {"both_bytes_per_s", rates.device.rates.both},
            {"flush_s", rates.device.flush},
            {"contended_compute", rates.device.contention.compute},
            {"contended_device", rates.device.contention.device},
            {"hash_bytes_per_s", 1 / rates.host.hash_per_byte},
            {"driver_s_per_byte", rates.host_seconds().driver_per_byte},
            {"threads", rates.threads},
            {"cores", rates.cores},
            {"places", rates.device.places}};
}

// Of a rank besides what there is of one alone; they are alike.
ordered_json json_of_ranks(const RunPlan& plan) {
    const zero::WireBytes wire = zero::wire_bytes(*plan.way.plan, plan.passes());
    return {{"ranks", plan.count.ranks},
            {"ranks_per_node", plan.count.sharing()},
            {"gathered_bytes", wire.gathered},
            {"exchanged_bytes", wire.exchanged},
            {"first_gathered_bytes", wire.gathered_first},
            {"node_pool_bytes", plan.count.sharing() * plan.way.plan->memory.budget.used_bytes()},
            {"node_store_bytes", plan.count.sharing() * plan.way.plan->store_bytes()},
            {"zero_bytes", zero::zero_stage_bytes(plan.parameters, plan.count.ranks)}};
}

ordered_json json_of_pool(const RunPlan& plan) {
    ordered_json uses = ordered_json::object();
    for (const pool::Use& use : plan.way.plan->memory.budget.uses()) uses[use.name] = use.bytes;
    return {{"limit_bytes", plan.way.plan->memory.budget.limit_bytes()},
            {"used_bytes", plan.way.plan->memory.budget.used_bytes()},
            {"uses", uses}};
}

}  // namespace

std::string line_of(const RunPlan& plan) {
    if (!plan.measured) return fmt::format("plan: {}", plan.unmeasured);
    const zero::ToldStep told = plan.step();
    return fmt::format(
        "plan: a step takes {:.3f} s, {:.2f} s of NVMe and {:.2f} s of the processor; it reads {:.3f} "
        "GB and writes {:.3f} GB. `penstock plan` says more",
        told.step.seconds, told.lanes.nvme, told.lanes.processor, giga(told.step.read_bytes),
        giga(told.step.write_bytes));
}

std::string text_of(const RunPlan& plan) {
    std::string text = report_line(
        "model", fmt::format("{:.2f} M parameters, {:.2f} M of them trained, in {} units; {} tokens per step",
                             static_cast<double>(plan.parameters) / 1e6, static_cast<double>(plan.trainable) / 1e6,
                             plan.way.plan->layout.unit_count(), plan.way.config.tokens_per_step()));
    text += text_of_memory(plan) + text_of_traffic(plan) + text_of_products(plan) + text_of_ranks(plan);
    if (!plan.measured) return text + report_line("step", plan.unmeasured);
    return text + report_of(plan.measured->rates) + report_of(plan.step()) + text_of_others(plan);
}

std::string json_of(const RunPlan& plan) {
    const zero::SessionPlan& own = *plan.way.plan;
    const ordered_json graphs = plan.graphs_are_known() ? ordered_json(plan.way.kept.bytes) : ordered_json(nullptr);
    const ordered_json units = plan.graphs_are_known() ? ordered_json(kept_units(plan)) : ordered_json(nullptr);
    ordered_json object = {{"params", plan.parameters},
                           {"trainable_params", plan.trainable},
                           {"units", own.layout.unit_count()},
                           {"tokens_per_step", plan.way.config.tokens_per_step()},
                           {"pool", json_of_pool(plan)},
                           {"activation_bytes", plan.activation_bytes()},
                           {"graph_bytes", graphs},                       // within them
                           {"kept_units", units},                         // whose graphs these are
                           {"activation_nvme_bytes", plan.way.away.out},  // as the step log has it
                           {"activation_nvme_read_bytes", plan.way.away.in},
                           {"prefetch_depth", own.memory.window.depth},
                           {"staging_tiles", own.memory.staging_tiles},
                           {"store_bytes", own.store_bytes()},
                           {"spill_bytes", spilled_bytes(plan.way)},
                           {"nvme_read_bytes", own.step_bytes.read},
                           {"nvme_write_bytes", own.step_bytes.write},
                           {"resident_write_bytes", own.step_bytes.resident_write},
                           {"bytes_per_param_step", plan.bytes_per_parameter()},
                           {"update_order", word_of(own.options.update_order)}};
    if (own.options.deferred_share)
        object["deferred_share"] = *own.options.deferred_share;
    else
        object["deferred_share"] = auto_text;
    if (plan.measured) {
        const zero::ToldStep told = plan.step();
        object["measured"] = json_of(plan.measured->rates);
        object["step"] = json_of(told.step);
        object["bottleneck"] = word_of(told.lanes.bottleneck);
        object["tokens_that_hide_nvme"] = told.tokens_that_hide_nvme();
        object["written_bytes_per_day"] = told.written_bytes_per_day();
        if (plan.endurance_bytes > 0) object["days_to_endurance"] = told.days_to_endurance();
    } else {
        object["unmeasured"] = plan.unmeasured;
    }
    if (plan.count.ranks > 1) object["of_ranks"] = json_of_ranks(plan);
    ordered_json others = ordered_json::array();
    for (const PlannedWay& other : plan.others) {
        others.push_back({{"set", other.changes}, {"graph_bytes", other.kept.bytes}});
        if (other.forecast) others.back()["step"] = json_of(*other.forecast);
    }
    object["others"] = std::move(others);
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace penstock::trainer
