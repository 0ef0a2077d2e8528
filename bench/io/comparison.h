// Our rounds beside fio's, as figures, ratios and targets.
#pragma once

#include "bench/io/fio.h"
#include "bench/io/io_bench.h"

#include <string>
#include <vector>

namespace penstock::bench {

// What the project promises of the comparison with fio on huge pages; fio's default then has to be beaten by as much as
// fio on huge pages beats it.
enum class Promise : std::uint8_t {
    none,
    bulk,     // rate 0.95, aim 0.98; CPU per GB at most 1.3, aim 1.0
    tensors,  // rate 0.90, aim 0.95
};

// `fio[i]` was run with `memories[i]`. Adds rates, CPU per GB, and their ratios round by round. REQUIRES: equally many
// rounds.
void report_comparison(Report& report, const std::string& what, const Series& ours, const std::vector<Series>& fio,
                       const std::vector<FioMemory>& memories, Promise promise);

}  // namespace penstock::bench
