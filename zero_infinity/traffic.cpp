#include "zero_infinity/traffic.h"

#include "aio/check.h"

namespace penstock {

// after_backward: forward and backward each read the weights; the update reads the states, and the weights once more
// when the master is rebuilt from them. every_step: the update writes both, wherever they are kept, because each step
// is a commit.
Traffic traffic(const StateFormat& format, UpdateOrder order, Durability durability, Residency residency) {
    PENSTOCK_CHECK(order == UpdateOrder::after_backward, "update order {}", static_cast<int>(order));
    PENSTOCK_CHECK(durability == Durability::every_step, "durability {}", static_cast<int>(durability));
    const auto weights = static_cast<double>(format.weights_bytes());
    const auto states = static_cast<double>(format.states_bytes());

    Traffic result;
    if (residency.weights == Tier::nvme) {
        const double reads = format.codec->master_needs_weights ? 3 : 2;
        result.read_bytes += reads * weights;
    }
    if (residency.states == Tier::nvme) result.read_bytes += states;
    result.write_bytes = weights + states;
    return result;
}

}  // namespace penstock
