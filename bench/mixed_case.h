// Demand reads beside write-back: what a reader waits for while everything else is written out.
#pragma once

#include "bench/io_bench.h"

namespace penstock {

// Ours with the bounds that Io has by default, against fio with two jobs on the same file: a writer with as many bytes
// in flight as our write-back may have, and with twice as many; and a reader of one block at a time. Both readers read
// 1 MiB at random places at the same pace; what is late is made up for at once, as fio does. Our times run from start()
// until done(), so they hold what fio leaves out: the wait before the submission.
void run_demand_case(IoBench& bench);

}  // namespace penstock
