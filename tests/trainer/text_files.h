// Text in files, for runs in a directory of their own.
#pragma once

#include "tests/temporary_directory.h"

#include <cstddef>
#include <string>

namespace penstock::testing {

std::string read_file(const std::string& path);
void write_file(const std::string& path, const std::string& text);
// About `bytes` of lower-case words that a model can learn from; the same for the same seed.
std::string toy_text(std::size_t bytes, unsigned seed);

}  // namespace penstock::testing
