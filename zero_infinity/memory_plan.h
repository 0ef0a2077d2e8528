// How a hard host budget is divided before anything is allocated: fixed uses first, the rest is the window for weights.
#pragma once

#include "pinned_pool/budget.h"
#include "zero_infinity/plan.h"
#include "zero_infinity/traffic.h"
#include "zero_infinity/unit.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock {

// What the configuration keys are called, so that refusals can name what to change; a program fills in its own names.
struct SettingNames {
    std::string host_budget = "host_budget_bytes";
    std::string device_budget = "device_budget_bytes";
    std::string prefetch_depth = "prefetch_depth";
    std::string staging = "staging_tiles";
    std::string gradient_type = "gradient_type";
    std::string resident_weights = "residency.weights";
    std::string resident_states = "residency.states";
    std::string keep = "keeping";
};

// Name of the budget's use that gradients take their memory from; those of weights and tiles are in driver.h and
// residents.h.
inline constexpr const char* gradients_use = "gradients";

struct MemoryRequest {
    const std::vector<UnitLayout>* units = nullptr;
    StateFormat format;
    Residency residency;
    std::vector<Visit> training;
    std::vector<Visit> inference;
    std::uint32_t prefetch_depth = 2;  // as far as the budgets allow
    std::uint32_t staging_tiles = 4;
    std::uint64_t gradient_bytes = 0;
    bool keeping = false;  // snapshots are copied during training
    std::uint64_t host_budget_bytes = 0;
    bool device_has_memory = false;  // of its own
    std::uint64_t device_budget_bytes = 0;    // all of it
    std::uint64_t device_gradient_bytes = 0;  // of it for gradients; the rest is the window for weights
};

struct MemoryPlan {
    Budget budget;
    PassSchedules training;
    PassSchedules inference;
};

// Throws Error (does_not_fit) with the table of uses, what is missing and the settings to change. Does not look at
// the machine.
MemoryPlan plan_memory(const MemoryRequest& request, const SettingNames& names);

}  // namespace penstock
