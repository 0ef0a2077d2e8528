// Demand reads beside write-back: what a reader waits for while everything else is written out.
#pragma once

#include "bench/io/io_bench.h"

namespace penstock::bench {

// 16 writes of 1 MiB are always outstanding, and a reader reads 1 MiB at random places, one at a time, at a given pace.
// Ours: Io with its default bounds, which decides how many of the 16 are in flight. Against it fio with two jobs on the
// same file, its writer once with 16 blocks in flight and once with 8, as many as our write-back may have.
//
// The yardstick, which the targets are held against, is fio with 16: the same load, all of it handed to the device. fio
// with 8 stands beside it without a target. Both readers are paced alike; what is late is made up for at once. Our
// times run from start() until done(), so they hold what fio leaves out: the wait before the submission.
void run_demand_case(IoBench& bench);

}  // namespace penstock::bench
