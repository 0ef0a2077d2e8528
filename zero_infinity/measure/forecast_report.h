// Rates and a forecast in words: lines, each with its newline, as `penstock plan` and the Python package print them.
#pragma once

#include "zero_infinity/measure/machine_rates.h"
#include "zero_infinity/measure/step_lanes.h"
#include "zero_infinity/plan/traffic.h"

#include <cstdint>
#include <string>

namespace penstock::zero {

// "step         4.968 s, ...": a line of such a report, whose continuations have no name.
std::string report_line(const std::string& name, const std::string& text);

struct ToldStep {
    StepForecast step;
    StepLanes lanes;
    UpdateOrder order = UpdateOrder::after_backward;
    std::uint64_t tokens = 0;    // of a step; 0: not known
    double endurance_bytes = 0;  // that the devices are rated to have written; 0: not known

    double tokens_that_hide_nvme() const noexcept { return lanes.hiding_compute * static_cast<double>(tokens); }
    double written_bytes_per_day() const noexcept { return step.write_bytes / step.seconds * 86400; }
    double days_to_endurance() const noexcept;  // 0: not known, or nothing is written
};

std::string report_of(const MachineRates& rates);
std::string report_of(const ToldStep& told);

}  // namespace penstock::zero
