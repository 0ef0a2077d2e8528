// The configuration in the words of the engine.
#pragma once

#include "trainer/config.h"
#include "zero_infinity/engine/session.h"

namespace penstock {

// `threads` is what config.threads became; `io` comes from io_settings().
SessionOptions session_options(const TrainConfig& config, unsigned threads, const IoLimits& io);

}  // namespace penstock
