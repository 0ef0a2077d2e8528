// A negative control: a program that shows that a test can fail. It runs the test's matrix on a product of which one
// file was replaced by a mutant at link time, and succeeds when the matrix finds that.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock {

// Calls `run` with the seeds 0, 1, … below `runs` until one of its complaints contains `expected`. Prints that and
// returns 0, or says that nothing was found and returns 1.
using ControlRun = std::function<std::vector<std::string>(std::uint64_t seed)>;
int find_mutant(const std::string& expected, std::uint64_t runs, const ControlRun& run);

}  // namespace penstock
