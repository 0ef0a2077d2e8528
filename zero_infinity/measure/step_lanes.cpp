#include "zero_infinity/measure/step_lanes.h"

#include <algorithm>

namespace penstock::zero {
namespace {

constexpr double clearly_longer = 1.1;

Bottleneck bottleneck_of(const StepForecast& step, double nvme, double processor) {
    if (step.seconds > clearly_longer * std::max(nvme, processor)) return Bottleneck::order;
    if (nvme > clearly_longer * processor) return Bottleneck::nvme;
    if (processor > clearly_longer * nvme) return Bottleneck::processor;
    return Bottleneck::both;
}

}  // namespace

StepLanes lanes_of(const StepForecast& step, const HostSeconds& host, const DeviceRates& rates) {
    StepLanes lanes;
    lanes.nvme = transfer_seconds(rates, step.read_bytes, step.write_bytes);
    const double besides = step.updating + step.lost + (host.threads >= host.cores ? step.driver : 0);
    lanes.processor = step.compute + besides;
    lanes.bottleneck = bottleneck_of(step, lanes.nvme, lanes.processor);
    if (step.compute > 0) lanes.hiding_compute = std::max(0.0, (lanes.nvme - besides) / step.compute);
    return lanes;
}

}  // namespace penstock::zero
