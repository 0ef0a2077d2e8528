#include "zero_infinity/traffic.h"

namespace penstock {
namespace {

// Forward and backward each read the weights; the update reads them once more when it rebuilds the master from them.
double reads_of_weights(const Codec& codec, UpdateOrder order) noexcept {
    const double update = codec.master_needs_weights ? 1 : 0;
    switch (order) {
        case UpdateOrder::after_backward:
            break;
        case UpdateOrder::deferred:
            return 1 + update;  // forward has what the update wrote
        case UpdateOrder::in_backward:
            return 2;  // the update has what backward read
    }
    return 2 + update;
}

// The share of steps that write what host memory holds: those that commit.
double writes_of_residents(Durability durability) noexcept {
    return durability.commit_steps == 0 ? 0 : 1 / static_cast<double>(durability.commit_steps);
}

}  // namespace

// What is on NVMe only is written by every update, wherever the next commit is.
Traffic traffic(const StateFormat& format, UpdateOrder order, Durability durability, Residency residency) {
    const auto weights = static_cast<double>(format.weights_bytes());
    const double states = format.states_bytes().value();
    const auto writes = [&](Tier tier) { return tier == Tier::nvme ? 1 : writes_of_residents(durability); };

    Traffic result;
    if (residency.weights == Tier::nvme) result.read_bytes += reads_of_weights(*format.codec, order) * weights;
    if (residency.states == Tier::nvme) result.read_bytes += states;
    result.write_bytes = writes(residency.weights) * weights + writes(residency.states) * states;
    return result;
}

}  // namespace penstock
