// What a session would take, in the C interface's words: decided by SessionPlan, with nothing opened.
#pragma once

#include "zero_infinity/capi/penstock_session.h"

namespace penstock::zero {

// Throws as the making of a CSession does before it touches anything.
penstock_plan plan_of(const penstock_model* model, const penstock_session_options* options);

}  // namespace penstock::zero
