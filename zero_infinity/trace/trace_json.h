// A recorded trace as Chrome's JSON, which ui.perfetto.dev and chrome://tracing open.
#pragma once

#include "zero_infinity/trace/trace_recorder.h"

#include <string>
#include <string_view>

namespace penstock::zero {

inline constexpr std::string_view trace_beginning = R"({"displayTimeUnit": "ms", "penstock.left_out": )";  // of each

// One row for the compute thread, whose spans lie within each other; for reads, writes, copies and commits as many rows
// as were ever under way at once. Times count from the first span, in microseconds; `penstock.left_out` says how many
// spans found the recorder full. REQUIRES: nobody adds to it any more.
std::string trace_json(const TraceRecorder& recorder);

}  // namespace penstock::zero
