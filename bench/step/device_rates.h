// What the device gives a plain program within the same seconds: the measure of what a step makes of it.
#pragma once

#include "bench/harness/bench_file.h"
#include "bench/step/step_ideal.h"
#include "zero_infinity/measure/block_source.h"
#include "zero_infinity/measure/io_rig.h"

#include <cstdint>
#include <string>
#include <vector>

namespace penstock::bench {

class Interruption;

// A file of its own in the directory, written once, at 1 MiB x 8 in each direction. Owned by one thread; every call
// throws Error (storage, interrupted).
class DeviceRatesRig {
   public:
    // Throws Error (does_not_fit), too.
    DeviceRatesRig(const std::string& directory, const std::string& name, std::uint64_t bytes, Interruption& stop);
    // `seconds` each of reads, of writes, of both.
    DeviceRates measure(double seconds);
    // Of both, beside so many threads that compute.
    zero::Contention contention(double seconds, unsigned threads, const DeviceRates& rates);
    // Bytes per second when all of the file is overwritten and flushed, as each commit of a step waits for it: what the
    // drive has taken is not on it yet.
    double durable_rate();
    const std::vector<std::string>& notes() const noexcept { return rig_.notes(); }

   private:
    double rate(zero::BlockWork work, double seconds);
    double write_once();  // seconds

    BenchFile file_;
    zero::IoRig rig_;
};

}  // namespace penstock::bench
