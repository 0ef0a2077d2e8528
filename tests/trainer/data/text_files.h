// Text in files, for runs in a directory of their own.
#pragma once

#include "tests/temporary_directory.h"

#include <nlohmann/json_fwd.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::testing {

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
std::vector<nlohmann::json> read_json_lines(const std::string& path);  // a run's log: one object per line
// About `bytes` of lower-case words that a model can learn from; the same for the same seed.
std::string toy_text(std::size_t bytes, unsigned seed);

}  // namespace penstock::testing
