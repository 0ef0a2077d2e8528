// One verb from its start to its printed result.
#pragma once

#include "aio/words/error.h"
#include "bench/harness/verbs.h"

#include <cstdint>
#include <iosfwd>
#include <string>

namespace penstock::bench {

enum class ResultFormat : std::uint8_t { table, json };

// Writes the report to `out`. What was measured before the verb threw is written too, as far as there are figures; then
// the error goes to `log` and its exit code is returned. So does a result that cannot be written (storage). Of a report
// that keeps quiet nothing is written.
ExitCode measure(const std::string& verb, const BenchRun& run, ResultFormat format, std::ostream& out,
                 std::ostream& log);

}  // namespace penstock::bench
