// What a session would take, in the C interface's words: decided by SessionPlan, with nothing opened.
#pragma once

#include "aio/words/error.h"
#include "zero_infinity/capi/penstock_session.h"

namespace penstock::zero {

struct CoreOptions;
struct ModelSpec;
struct MachineRoom;

// Throws as the making of a CSession does before it touches anything.
penstock_plan plan_of(const penstock_model* model, const penstock_session_options* options);

// What ended the making of a session with these, and the lightest options that fit where memory is what lacks.
Error with_lightest(const Error& error, const ModelSpec& model, const CoreOptions& options, const MachineRoom& room);

}  // namespace penstock::zero
