// How long a step will take, in the C interface's words: rates by measure_machine, the forecast by forecast_of.
#pragma once

#include "zero_infinity/capi/penstock_forecast.h"

namespace penstock::zero {

// Both throw store::Refusal (usage) of what is given wrong, and Error as the functions that they stand for.
penstock_rates measured_rates(const penstock_model* model, const penstock_session_options* options, double seconds);
penstock_forecast forecast_of(const penstock_model* model, const penstock_session_options* options,
                              const penstock_rates* rates, const penstock_compute* compute);

}  // namespace penstock::zero
