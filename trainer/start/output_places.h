// Where a run writes, held against what it reads and where its store is.
#pragma once

#include "trainer/config/config.h"

#include <string>

namespace penstock::trainer {

// Before anything is made. Throws Error (usage) that names both: run.directory is a store's directory or in one; a file
// of it would be the configuration, the data or a directory of the store; the trace (empty: there is none), or what is
// written of it first, would be one of all these, or in a store's directory.
void check_outputs(const TrainConfig& config, const std::string& config_file, const std::string& trace_file);

}  // namespace penstock::trainer
