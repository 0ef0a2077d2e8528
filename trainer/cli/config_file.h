// The text of a configuration file.
#pragma once

#include <string>

namespace penstock::trainer {

// It may be a pipe, e.g. `penstock train <(jq ... base.json)`. Throws Error (usage).
std::string read_config(const std::string& path);

}  // namespace penstock::trainer
