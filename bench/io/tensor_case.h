// Tensors of mixed odd lengths, each one transfer of one exact lease, beside fio's bulk rate.
#pragma once

#include "bench/io/io_bench.h"

namespace penstock::bench {

// Writes, then reads. A section of ours ends with its last tensor and not with the second.
void run_tensor_case(IoBench& bench);

// How long fio runs after a section of ours: as long, rounded up to the milliseconds that it counts.
double seconds_after(const zero::Moved& ours);

}  // namespace penstock::bench
