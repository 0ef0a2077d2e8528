// What a step could take at best: in each phase the NVMe works while compute does, so that the longer of the two is
// what it takes.
#pragma once

#include "bench/step/step_way.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/forecast/virtual_device.h"
#include "zero_infinity/plan/traffic.h"

#include <span>
#include <vector>

namespace penstock::bench {

// Seconds of one step of the same engine with everything in host memory, where nothing waits for a transfer.
struct StepCompute {
    double forward = 0;
    double backward = 0;
    double update = 0;
    double rest = 0;           // reading tokens, logging
    double hash_per_byte = 0;  // of what moves, which memory alone needs none of; all cores at it
};

using zero::DeviceRates;

// Bytes of one step.
struct StepTraffic {
    double weights = 0;  // read by forward, and again by backward
    double read = 0;     // in all
    double write = 0;
    double update = 0;  // read by an update that stands alone
};
StepTraffic traffic_of(const zero::StateFormat& format, zero::Durability durability, zero::Residency residency,
                       StepWay way, double trainable_numel, double deferred_share = 0);

struct StepPhase {
    double compute = 0;  // seconds
    double read = 0;     // bytes
    double write = 0;
};

// What of a step runs beside what: the update by itself, beside forward, or beside backward; balanced, as if the whole
// step were one phase. `again`: the share of steps whose update is made a second time, beside the next step's forward.
std::vector<StepPhase> phases_of(StepWay way, const StepCompute& compute, const StepTraffic& traffic, double again = 0);
double transfer_seconds(const StepPhase& phase, const DeviceRates& rates);
double ideal_seconds(std::span<const StepPhase> phases, const DeviceRates& rates);
// The same where compute and transfers slow each other down: until one of them is done, then the other goes on alone.
double contended_seconds(std::span<const StepPhase> phases, const DeviceRates& rates,
                         const zero::Contention& contention);
// As if the whole step were one phase: no order of events is faster.
double least_seconds(std::span<const StepPhase> phases, const DeviceRates& rates);
// The same where all that is written is to be durable at its end, at `durable_rate` bytes per second.
double durable_seconds(std::span<const StepPhase> phases, const DeviceRates& rates, double durable_rate);

}  // namespace penstock::bench
