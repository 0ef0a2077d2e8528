#include "zero_infinity/plan/traffic.h"

#include <algorithm>
#include <cmath>

namespace penstock::zero {
namespace {

// Forward and backward each read the weights; the update reads them once more when it rebuilds the master from them. A
// deferred one leaves them to forward, and one in backward finds them.
double reads_of_weights(const Codec& codec, UpdateOrder order) noexcept {
    const double both = order == UpdateOrder::deferred ? 1 : 2;
    return codec.master_needs_weights && order != UpdateOrder::within ? both + 1 : both;
}

// The share of steps that write what host memory holds: those that commit.
double writes_of_residents(Durability durability) noexcept {
    return durability.commit_steps == 0 ? 0 : 1 / static_cast<double>(durability.commit_steps);
}

}  // namespace

// What is on NVMe only is written by every update, wherever the next commit is.
Traffic traffic(const StateFormat& format, Durability durability, Residency residency, UpdateOrder order,
                double deferred_share, double gradient_bytes) {
    if (order == UpdateOrder::within && deferred_share > 0) {
        const Traffic within = traffic(format, durability, residency, UpdateOrder::within, 0, gradient_bytes);
        const Traffic deferred = traffic(format, durability, residency, UpdateOrder::deferred, 0, gradient_bytes);
        return {std::lerp(within.read_bytes, deferred.read_bytes, deferred_share), within.write_bytes};
    }
    const auto weights = static_cast<double>(format.weights_bytes());
    const double states = format.states_bytes().value();
    const auto writes = [&](Tier tier) { return tier == Tier::nvme ? 1 : writes_of_residents(durability); };

    Traffic result{.read_bytes = order == UpdateOrder::within ? 0 : gradient_bytes, .write_bytes = gradient_bytes};
    if (residency.weights == Tier::nvme) result.read_bytes += reads_of_weights(*format.codec, order) * weights;
    if (residency.states == Tier::nvme) result.read_bytes += states;
    result.write_bytes += writes(residency.weights) * weights + writes(residency.states) * states;
    return result;
}

double balanced_share(const StateFormat& format, Durability durability, Residency residency, double forward_part) {
    const double all = traffic(format, durability, residency, UpdateOrder::within).total();
    const double pass = residency.weights == Tier::nvme ? static_cast<double>(format.weights_bytes()) : 0;
    const double updates = all - 2 * pass;
    return updates <= 0 ? 0 : std::clamp((forward_part * all - pass) / updates, 0.0, 1.0);
}

double StepBytes::mean(Durability durability) const noexcept {
    const auto steps = static_cast<double>(durability.commit_steps);
    return static_cast<double>(read + write) + (steps == 0 ? 0 : static_cast<double>(resident_write) / steps);
}

}  // namespace penstock::zero
