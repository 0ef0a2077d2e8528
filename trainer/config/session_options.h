// The configuration in the words of the engine.
#pragma once

#include "trainer/config/config.h"
#include "zero_infinity/engine/session.h"

namespace penstock::trainer {

// `threads` is what config.threads became; `io` comes from io_settings().
engine::SessionOptions session_options(const TrainConfig& config, unsigned threads, const aio::IoLimits& io);

}  // namespace penstock::trainer
