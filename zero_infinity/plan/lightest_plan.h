// What to give up where a model does not fit: the settings that need least memory, from what changes least.
#pragma once

#include "zero_infinity/plan/session_plan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace penstock::zero {

// In this order. None but the last changes a bit of the result.
enum class Lightening : std::uint8_t {
    prefetch_one,  // visit ahead
    staging_two,   // tiles
    states_on_nvme,
    weights_on_nvme,
    no_prefetch,
    gradients_on_nvme,  // where the client has a setting for it: SettingNames::gradient_memory
    gradients_bf16,
};

struct LightestPlan {
    std::vector<Lightening> changes;
    std::uint64_t pool_bytes = 0;  // a budget that is enough with them, for all ranks that share the room
};

// As many of them as bring the pool under the options' budget; all that there are, where none does. Nothing where the
// room is not enough even for these. `least_prefetch`: visits ahead that the client can ask for at least, 0 or
// 1. Throws as SessionPlan, but for does_not_fit.
std::optional<LightestPlan> lightest_plan(const ModelSpec& model, const CoreOptions& options, const MachineRoom& room,
                                          Partition partition, std::uint32_t least_prefetch);

}  // namespace penstock::zero
