#include "zero_infinity/measure/machine_rates.h"

#include "zero_infinity/threads/workers.h"

#include <algorithm>
#include <utility>

namespace penstock::zero {

namespace {

// A host that caches writes makes them durable later, and a commit waits for that: so it is asked of about as many
// bytes as a step writes. Beyond a gigabyte the ones that were seen had begun by themselves.
std::uint64_t file_bytes(const SessionPlan& plan) {
    const std::uint64_t written = plan.step_bytes.write + plan.step_bytes.resident_write;
    return std::clamp<std::uint64_t>(written / plan.options.swap_directories.size(), 256U << 20, 1U << 30);
}

}  // namespace

HostSeconds MachineRates::host_seconds() const noexcept {
    return {.driver_per_byte = device.driver_per_byte + (hashed_apart ? 0 : host.hash_per_byte),
            .commit = device.flush,
            .rest = 0,
            .threads = threads,
            .cores = cores,
            .contention = device.contention};
}

MachineRates measure_machine(const SessionPlan& plan, const MachineQuestion& question) {
    const auto tell = [&](const char* what) {
        if (question.telling) question.telling(what);
    };
    MachineRates rates;
    rates.threads = plan.options.worker_threads;
    rates.cores = plan.room.cores;
    rates.hashed_apart = question.hashed_apart;
    tell("the device");
    rates.device = measure_device({.directories = plan.options.swap_directories,
                                   .limits = question.limits,
                                   .backend = plan.options.backend,
                                   .caching = plan.options.caching,
                                   .file_bytes = file_bytes(plan),
                                   .seconds = question.seconds,
                                   .compute_threads = rates.threads,
                                   .cores = rates.cores});
    tell("the update");
    Workers workers(rates.threads);
    rates.host = measure_host(plan, workers, question.seconds);
    return rates;
}

void add_update_seconds(const ModelLayout& layout, const MeasuredHost& host, std::span<UnitSeconds> units) {
    for (std::uint32_t unit = 0; unit < layout.unit_count(); ++unit) {
        const auto numel = static_cast<double>(layout.unit(unit).shard_numel());
        units[unit].update += numel * host.update_per_element;
        units[unit].norm += numel * host.norm_per_element;
    }
}

StepForecast forecast_of(const SessionPlan& plan, const MachineRates& rates, const MeasuredCompute& compute) {
    std::vector<UnitSeconds> units = compute.units;
    units.resize(plan.layout.unit_count());
    add_update_seconds(plan.layout, rates.host, units);
    const PassVisits& visits = compute.visits.empty() ? plan.model.training : compute.visits;
    HostSeconds host = rates.host_seconds();
    host.rest = compute.rest;
    LaidAside laid{.items = {}, .budget_bytes = plan.options.activation_bytes};
    if (laid.budget_bytes > 0) laid.items = compute.laid;
    return forecast_step({.layout = &plan.layout,
                          .window = plan.memory.window,
                          .staging_tiles = plan.memory.staging_tiles,
                          .training = visits,
                          .rules = plan.rules,
                          .durability = plan.options.durability,
                          .passes = std::max<std::uint64_t>(compute.passes, 1),
                          .visit_seconds = compute.visit_seconds,
                          .forward_visits = compute.forward_visits,
                          .spilled_gradients = plan.leaving_gradients(),
                          .laid = std::move(laid)},
                         units, host, rates.device.rates);
}

}  // namespace penstock::zero
