// The decoder of trainer/models/gpt.h once more, in plain loops and double, from its description: an oracle for small
// shapes.
#pragma once

#include "trainer/models/gpt_options.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock::testing {

using Weights = std::map<std::string, std::vector<double>>;  // "UNIT.PARAMETER" → row-major values

// Logits [column][vocabulary] of one row of tokens.
std::vector<std::vector<double>> reference_logits(const trainer::GptOptions& options, const Weights& weights,
                                                  const std::vector<std::int64_t>& tokens);

}  // namespace penstock::testing
