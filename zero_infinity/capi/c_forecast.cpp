#include "zero_infinity/capi/c_forecast.h"

#include "swap/capi/c_error.h"
#include "swap/capi/c_struct.h"
#include "zero_infinity/capi/c_model.h"
#include "zero_infinity/capi/c_text.h"
#include "zero_infinity/measure/forecast_report.h"
#include "zero_infinity/measure/machine_rates.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <set>
#include <utility>
#include <vector>

namespace penstock::zero {
namespace {

using store::require;

constexpr std::size_t least_rates_bytes = offsetof(penstock_rates, places);
constexpr std::size_t least_compute_bytes = offsetof(penstock_compute, passes);
constexpr double default_seconds = 0.4;
constexpr double most_seconds = 60;

SessionPlan session_plan_of(const penstock_model* model, const penstock_session_options* options) {
    const penstock_session_options given = store::taken(options, least_options_bytes, "options");
    require(given.forwards == 0, "options.forwards: a session for forwards alone makes no steps to forecast");
    const CoreOptions core = options_of(given);
    return {model_of(model), core, MachineRoom::read(core.device), Partition{}};
}

bool is_positive(double value) {
    return std::isfinite(value) && value > 0;
}

bool is_time(double value) {
    return std::isfinite(value) && value >= 0;
}

MachineRates rates_of(const penstock_rates* given) {
    const penstock_rates rates = store::taken(given, least_rates_bytes, "rates");
    require(is_positive(rates.read) && is_positive(rates.write) && is_positive(rates.both),
            "rates of a device of {}, {} and {} bytes/s: measure them by penstock_session_measure", rates.read,
            rates.write, rates.both);
    for (const double each : {rates.flush_seconds, rates.submit_per_byte, rates.hash_per_byte, rates.update_per_element,
                              rates.norm_per_element})
        require(is_time(each), "rates have a time of {} s", each);
    require(rates.threads > 0 && rates.cores > 0, "rates of {} threads on {} cores", rates.threads, rates.cores);
    const auto kept = [](double share) { return share == 0 ? 1 : share; };
    const Contention contention{kept(rates.contended_compute), kept(rates.contended_device)};
    for (const double each : {contention.compute, contention.device})
        require(each > 0 && each <= 1, "rates of which {} are kept where compute and the devices are both at it", each);
    return {.device = {.rates = {.read = rates.read, .write = rates.write, .both = rates.both},
                       .contention = contention,
                       .driver_per_byte = rates.submit_per_byte,
                       .flush = rates.flush_seconds,
                       .places = {},
                       .notes = {}},
            .host = {.update_per_element = rates.update_per_element,
                     .norm_per_element = rates.norm_per_element,
                     .hash_per_byte = rates.hash_per_byte},
            .threads = rates.threads,
            .cores = rates.cores};
}

// Visits as the session makes them: with the owners of what their units borrow.
PassVisits whole_visits(const penstock_compute& given, const SessionPlan& plan) {
    PassVisits visits = visits_of(given.visits, given.visit_count, plan.layout.unit_count());
    for (Visit& visit : visits) visit = with_owners(visit, plan.model.units);
    return visits;
}

// Of compute.laid[i].
std::vector<std::size_t> visits_that_take(const penstock_laid& laid, std::size_t i, std::size_t visit_count) {
    require(laid.taken_in != nullptr && laid.taken_count > 0, "compute.laid[{}] is never taken", i);
    std::vector<std::size_t> visits(laid.taken_in, laid.taken_in + laid.taken_count);
    std::size_t before = laid.laid_in;
    for (const std::size_t visit : visits) {
        require(before < visit && visit < visit_count,
                "compute.laid[{}] is laid aside in visit {} and taken in {} of {}, behind {}", i, laid.laid_in, visit,
                visit_count, before);
        before = visit;
    }
    return visits;
}

std::vector<LaidItem> laid_of(const penstock_compute& given) {
    require(given.laid != nullptr || given.laid_count == 0, "compute.laid is NULL");
    std::vector<LaidItem> items;
    std::set<std::uint64_t> turns;
    for (std::size_t i = 0; i < given.laid_count; ++i) {
        const penstock_laid& laid = given.laid[i];
        require(laid.bytes > 0, "compute.laid[{}] has no bytes", i);
        require(turns.insert(laid.turn).second, "compute.laid has turn {} twice", laid.turn);
        items.push_back({.turn = laid.turn,
                         .bytes = laid.bytes,
                         .laid_in = laid.laid_in,
                         .taken_in = visits_that_take(laid, i, given.visit_count)});
    }
    return items;
}

MeasuredCompute compute_of(const penstock_compute& given, const SessionPlan& plan) {
    MeasuredCompute compute;
    compute.passes = std::max<std::uint64_t>(given.passes, 1);
    require(compute.passes <= 1U << 20, "compute has {} passes in a step", compute.passes);
    if (given.visit_count == 0) return compute;
    if (given.visits != nullptr) compute.visits = whole_visits(given, plan);
    const std::size_t visits = given.visits != nullptr ? given.visit_count : plan.model.training.size();
    require(given.visit_count == visits, "compute has the seconds of {} visits, and the model makes {}",
            given.visit_count, visits);
    require(given.seconds != nullptr, "compute.seconds is NULL");
    require(given.forward_count <= visits, "of {} visits {} are forward", visits, given.forward_count);
    compute.visit_seconds.assign(given.seconds, given.seconds + given.visit_count);
    for (const double each : compute.visit_seconds) require(is_time(each), "compute has a visit of {} s", each);
    require(is_time(given.rest_seconds), "compute.rest_seconds is {}", given.rest_seconds);
    require(is_time(given.endurance_bytes), "compute.endurance_bytes is {}", given.endurance_bytes);
    compute.forward_visits = given.forward_count;
    compute.rest = given.rest_seconds;
    compute.laid = laid_of(given);
    return compute;
}

penstock_forecast without_compute(const StepForecast& step, const StepLanes& lanes) {
    penstock_forecast forecast{};
    forecast.struct_bytes = sizeof forecast;
    forecast.nvme_seconds = lanes.nvme;
    forecast.update_seconds = step.updating;
    forecast.read_bytes = step.read_bytes;
    forecast.write_bytes = step.write_bytes;
    return forecast;
}

penstock_forecast told(const ToldStep& told) {
    const StepForecast& step = told.step;
    penstock_forecast forecast = without_compute(step, told.lanes);
    forecast.seconds = step.seconds;
    forecast.forward_seconds = step.forward;
    forecast.backward_seconds = step.backward;
    forecast.after_seconds = step.update;
    forecast.commit_seconds = step.commit;
    forecast.wait_weights_seconds = step.wait_weights;
    forecast.wait_states_seconds = step.wait_tiles;
    forecast.wait_spills_seconds = step.wait_spills;
    forecast.compute_seconds = step.compute;
    forecast.reading_seconds = step.reading;
    forecast.writing_seconds = step.writing;
    forecast.driver_seconds = step.driver;
    forecast.processor_seconds = told.lanes.processor;
    forecast.bottleneck = static_cast<penstock_bottleneck>(told.lanes.bottleneck);
    forecast.hiding_compute = told.lanes.hiding_compute;
    forecast.tokens_that_hide_nvme = told.tokens_that_hide_nvme();
    forecast.written_bytes_per_day = told.written_bytes_per_day();
    forecast.days_to_endurance = told.days_to_endurance();
    put_text(report_of(told), forecast.text);
    return forecast;
}

}  // namespace

penstock_rates measured_rates(const penstock_model* model, const penstock_session_options* options, double seconds) {
    require(is_time(seconds) && seconds <= most_seconds, "measuring for {} s: give up to {}", seconds, most_seconds);
    const SessionPlan plan = session_plan_of(model, options);
    const MachineRates measured =
        measure_machine(plan, {.limits = plan.options.io, .seconds = seconds == 0 ? default_seconds : seconds});
    penstock_rates rates{};
    rates.struct_bytes = sizeof rates;
    rates.read = measured.device.rates.read;
    rates.write = measured.device.rates.write;
    rates.both = measured.device.rates.both;
    rates.flush_seconds = measured.device.flush;
    rates.submit_per_byte = measured.device.driver_per_byte;
    rates.hash_per_byte = measured.host.hash_per_byte;
    rates.update_per_element = measured.host.update_per_element;
    rates.norm_per_element = measured.host.norm_per_element;
    rates.threads = measured.threads;
    rates.cores = measured.cores;
    rates.contended_compute = measured.device.contention.compute;
    rates.contended_device = measured.device.contention.device;
    put_text(fmt::format("{}", fmt::join(measured.device.places, "\n")), rates.places);
    put_text(fmt::format("{}", fmt::join(measured.device.notes, "\n")), rates.notes);
    put_text(report_of(measured), rates.text);
    return rates;
}

penstock_forecast forecast_of(const penstock_model* model, const penstock_session_options* options,
                              const penstock_rates* given_rates, const penstock_compute* given_compute) {
    const SessionPlan plan = session_plan_of(model, options);
    require(plan.options.device.kind == DeviceKind::cpu, "times of a device with memory of its own are not forecast");
    const MachineRates rates = rates_of(given_rates);
    const penstock_compute compute = store::taken(given_compute, least_compute_bytes, "compute");
    const StepForecast step = forecast_of(plan, rates, compute_of(compute, plan));
    const StepLanes lanes = lanes_of(step, rates.host_seconds(), rates.device.rates);
    if (compute.visit_count == 0) return without_compute(step, lanes);
    return told({.step = step,
                 .lanes = lanes,
                 .order = plan.options.update_order,
                 .tokens = compute.tokens,
                 .endurance_bytes = compute.endurance_bytes});
}

}  // namespace penstock::zero
