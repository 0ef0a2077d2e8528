// What a session would take, in the C interface's words: decided by SessionPlan, with nothing opened.
#pragma once

#include "aio/words/error.h"
#include "zero_infinity/capi/penstock_look.h"
#include "zero_infinity/plan/ranks/ranks_plan.h"

namespace penstock::zero {

struct CoreOptions;
struct ModelSpec;
struct MachineRoom;

// Throws as the making of a CSession does before it touches anything.
penstock_plan plan_of(const penstock_model* model, const penstock_session_options* options);

// The same of each of several ranks, and what it takes besides. Throws also where those of one machine do not fit.
struct PlanOfRanks {
    penstock_plan plan;
    penstock_ranks_plan of_ranks;
};
PlanOfRanks plan_of_ranks(const penstock_model* model, const penstock_session_options* options, const RankCount& count,
                          std::uint64_t passes);

// What ended the making of a session with these, and the lightest options that fit where memory is what lacks.
Error with_lightest(const Error& error, const ModelSpec& model, const CoreOptions& options, const MachineRoom& room,
                    Partition partition = {});

}  // namespace penstock::zero
