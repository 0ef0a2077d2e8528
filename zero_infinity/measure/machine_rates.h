// What this machine gives a session within a few seconds, but for compute, which is its client's; and the forecast that
// is made of both.
#pragma once

#include "aio/io.h"
#include "zero_infinity/forecast/step_forecast.h"
#include "zero_infinity/measure/measured_device.h"
#include "zero_infinity/measure/measured_host.h"
#include "zero_infinity/plan/session_plan.h"

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace penstock::zero {

struct MachineRates {
    MeasuredDevice device;
    MeasuredHost host;
    unsigned threads = 1;  // of the update
    unsigned cores = 1;    // that this process may use
    bool hashed_apart = false;

    HostSeconds host_seconds() const noexcept;
};

struct MachineQuestion {
    aio::IoLimits limits;                                  // of the run's own I/O
    double seconds = 0.4;                                  // of six measurements; a seventh is twelve times as long
    bool hashed_apart = false;                             // on cores that neither compute nor the driver has
    std::function<void(const std::string& what)> telling;  // what is measured now; may be empty
};

// Throws Error: does_not_fit (no room for 256 MiB to 1 GiB in a directory, as much as a step
// writes there, or for 256 MiB in memory), storage.
MachineRates measure_machine(const SessionPlan& plan, const MachineQuestion& question);

// What its update and its norm take, added to the seconds of each unit.
void add_update_seconds(const ModelLayout& layout, const MeasuredHost& host, std::span<UnitSeconds> units);

// Compute as a client measured it: by unit, or by visit.
struct MeasuredCompute {
    std::vector<UnitSeconds> units;  // forward and backward, where visits say nothing; empty: all 0
    PassVisits visits;               // of one training pass, with owners; empty: the plan's
    std::vector<double> visit_seconds;
    std::size_t forward_visits = 0;
    std::uint64_t passes = 1;  // before one update
    double rest = 0;           // of a step, outside its passes
    // Of one training pass; nothing is laid aside where CoreOptions::activation_bytes is 0.
    std::vector<LaidItem> laid;
};

// Throws Error (does_not_fit) naming units that are visited at once and find no room in the window of the plan, or
// what is laid aside and finds none in its budget.
// REQUIRES: visit_seconds are none, or as many as visits; things are laid aside in a visit and taken in a later one.
StepForecast forecast_of(const SessionPlan& plan, const MachineRates& rates, const MeasuredCompute& compute);

}  // namespace penstock::zero
