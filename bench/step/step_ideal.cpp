#include "bench/step/step_ideal.h"

#include <algorithm>

namespace penstock::bench {
namespace {

StepPhase with_hash(StepPhase phase, const StepCompute& compute) {
    phase.compute += (phase.read + phase.write) * compute.hash_per_byte;
    return phase;
}

StepPhase scaled(const StepPhase& phase, double share) {
    return {.compute = share * phase.compute, .read = share * phase.read, .write = share * phase.write};
}

void add(StepPhase& phase, const StepPhase& beside) {
    phase.compute += beside.compute;
    phase.read += beside.read;
    phase.write += beside.write;
}

StepPhase together(std::span<const StepPhase> phases) {
    StepPhase all;
    for (const StepPhase& phase : phases) add(all, phase);
    return all;
}

}  // namespace

StepTraffic traffic_of(const zero::StateFormat& format, zero::Durability durability, zero::Residency residency,
                       StepWay way, double trainable_numel, double deferred_share) {
    const zero::Traffic per_parameter =
        zero::traffic(format, durability, residency, order_of(way), way == StepWay::balanced ? deferred_share : 0);
    const double alone = zero::traffic(format, durability, residency, zero::UpdateOrder::after_backward).read_bytes;
    const bool streamed = residency.weights == zero::Tier::nvme;
    const double weights = streamed ? static_cast<double>(format.weights_bytes()) : 0;
    return {.weights = weights * trainable_numel,
            .read = per_parameter.read_bytes * trainable_numel,
            .write = per_parameter.write_bytes * trainable_numel,
            .update = (alone - 2 * weights) * trainable_numel};
}

std::vector<StepPhase> phases_of(StepWay way, const StepCompute& compute, const StepTraffic& traffic, double again) {
    const StepPhase forward{.compute = compute.forward + compute.rest, .read = traffic.weights};
    const StepPhase backward{.compute = compute.backward, .read = traffic.weights};
    const StepPhase update{
        .compute = compute.update, .read = traffic.read - 2 * traffic.weights, .write = traffic.write};
    std::vector<StepPhase> phases = {forward, backward};
    const zero::UpdateOrder order = order_of(way);
    if (order == zero::UpdateOrder::within) {
        add(phases.back(), update);
    } else if (order ==
               zero::UpdateOrder::deferred) {  // one read of the weights serves both: update.read is that much less
        add(phases.front(), update);
    } else {
        phases.push_back(update);
    }
    if (way == StepWay::balanced) phases = {together(phases)};
    if (again > 0) {  // what was speculated is made anew beside the next forward, which reads the weights for both
        StepPhase first = phases.front();
        add(first, {.compute = update.compute, .read = traffic.update - traffic.weights, .write = update.write});
        phases.push_back(scaled(first, again));
        phases.front() = scaled(phases.front(), 1 - again);
    }
    for (StepPhase& phase : phases) phase = with_hash(phase, compute);
    return phases;
}

double transfer_seconds(const StepPhase& phase, const DeviceRates& rates) {
    return zero::transfer_seconds(rates, phase.read, phase.write);
}

double ideal_seconds(std::span<const StepPhase> phases, const DeviceRates& rates) {
    double seconds = 0;
    for (const StepPhase& phase : phases) seconds += std::max(phase.compute, transfer_seconds(phase, rates));
    return seconds;
}

double contended_seconds(std::span<const StepPhase> phases, const DeviceRates& rates,
                         const zero::Contention& contention) {
    double seconds = 0;
    for (const StepPhase& phase : phases) {
        const double transfers = transfer_seconds(phase, rates);
        const double together = std::min(phase.compute / contention.compute, transfers / contention.device);
        seconds += together + std::max({0.0, phase.compute - together * contention.compute,
                                        transfers - together * contention.device});
    }
    return seconds;
}

double least_seconds(std::span<const StepPhase> phases, const DeviceRates& rates) {
    const StepPhase all = together(phases);
    return std::max(all.compute, transfer_seconds(all, rates));
}

double durable_seconds(std::span<const StepPhase> phases, const DeviceRates& rates, double durable_rate) {
    const double written = together(phases).write;
    return std::max(least_seconds(phases, rates), written > 0 ? written / durable_rate : 0);
}

}  // namespace penstock::bench
