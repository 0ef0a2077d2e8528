// Writes are not on the drive when it has taken them: how long until they are, as each commit of a step waits for it.
#pragma once

#include "bench/harness/bench_file.h"
#include "bench/io/io_rig.h"

#include <cstdint>
#include <string>

namespace penstock::bench {

class Interruption;

// Overwrites a file of its own in the directory, 1 MiB x 8, and flushes it. Owned by one thread.
class DurableWrites {
   public:
    // `bytes` should be what one step writes, since what is taken and not yet durable differs with it; at most 4 GiB
    // are. Throws Error (does_not_fit, storage, interrupted), as rate() does.
    DurableWrites(const std::string& directory, double bytes, Interruption& stop);
    double rate();  // bytes per second, the flush included

   private:
    BenchFile file_;
    IoRig rig_;
    Interruption& stop_;
};

}  // namespace penstock::bench
