// What a session is going to be, decided before anything is touched: the model's layout, how the budgets are divided,
// what a step moves.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/engine/model.h"
#include "zero_infinity/engine/session_options.h"
#include "zero_infinity/plan/memory_plan.h"
#include "zero_infinity/plan/model_layout.h"
#include "zero_infinity/plan/parameter_groups.h"
#include "zero_infinity/plan/traffic.h"

#include <memory>
#include <string>

namespace penstock::engine {

// Stays where it is made: its parts refer to each other.
struct SessionPlan {
    // Throws Error: usage (options, a group that no parameter is in), does_not_fit (with the table of uses: the
    // budgets, or what this machine has now).
    SessionPlan(std::unique_ptr<Model> model, zero::ParameterGroups optimizers, SessionOptions options,
                zero::Partition partition);
    SessionPlan(const SessionPlan&) = delete;
    SessionPlan& operator=(const SessionPlan&) = delete;

    zero::Traffic nominal_traffic() const;

    const SessionOptions options;  // checked
    const std::unique_ptr<Model> model;
    const zero::ParameterGroups optimizers;
    const zero::StateFormat format;
    const std::string fingerprint;  // of all that decides what the bytes of the objects mean
    const zero::ModelLayout layout;
    const zero::MemoryPlan memory;
    const zero::StepBytes step_bytes;
};

}  // namespace penstock::engine
