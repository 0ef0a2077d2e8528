// What a verb prints.
#pragma once

#include <string>

namespace penstock::trainer {

// To standard output, which is for results alone: what cannot be written there is an Error (storage), not a loss.
void write_result(const std::string& text);

}  // namespace penstock::trainer
