// Tensors of mixed odd lengths, each one transfer of one exact lease, beside fio's bulk rate.
#pragma once

#include "bench/io_bench.h"

#include <cstdint>
#include <vector>

namespace penstock {

// Odd lengths from 1 MB to 1 GB, at random with each power of ten equally likely, a good half of `total_bytes` or more
// together and never above. The same seed gives the same lengths. REQUIRES: total_bytes >= 4 MB.
std::vector<std::uint64_t> tensor_lengths(std::uint64_t total_bytes, std::uint64_t seed);

void run_tensor_case(IoBench& bench);

}  // namespace penstock
