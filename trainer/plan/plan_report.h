// A plan in words, and as one JSON object.
#pragma once

#include "trainer/plan/run_plan.h"

#include <string>

namespace penstock::trainer {

std::string line_of(const RunPlan& plan);  // the step in one line
std::string text_of(const RunPlan& plan);  // lines, each with its newline
std::string json_of(const RunPlan& plan);  // one line

}  // namespace penstock::trainer
