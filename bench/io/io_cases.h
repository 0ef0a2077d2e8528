// Blocks at a few points, beside fio: in order and at random, read, overwrite, first write, half of each.
#pragma once

#include "bench/io/io_bench.h"

#include <string>
#include <vector>

namespace penstock::bench {

// "read", "overwrite", "random-read", "random-overwrite", "mixed", "first-write"
const std::vector<std::string>& block_case_names();
// The points that the case is measured at unless the options say others.
std::vector<IoPoint> points_of(const IoBenchOptions& options, const std::string& name);
void run_block_case(IoBench& bench, const std::string& name);  // REQUIRES: one of the names

// Writes the whole file once, so that nothing is read that the device never stored.
void fill(IoBench& bench, const BenchFile& file);

}  // namespace penstock::bench
