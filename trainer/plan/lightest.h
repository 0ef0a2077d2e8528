// The settings that need least memory, for who was told that theirs do not fit.
#pragma once

#include "trainer/plan/run_plan.h"

#include <string>

namespace penstock::trainer {

// "The lightest that fits: --set memory.host_budget=812MiB --set memory.prefetch_depth=0", or what even that lacks.
std::string lightest_settings(const ConfigSource& source, const zero::MachineRoom& room);

}  // namespace penstock::trainer
