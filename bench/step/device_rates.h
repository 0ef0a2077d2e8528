// What the device gives a plain program within the same seconds: the measure of what a step makes of it.
#pragma once

#include "bench/harness/bench_file.h"
#include "bench/io/block_source.h"
#include "bench/io/io_rig.h"
#include "bench/step/step_ideal.h"

#include <string>
#include <vector>

namespace penstock::bench {

class Interruption;

// A file of its own in the directory, at 1 MiB x 8 in each direction. Owned by one thread.
class DeviceRatesRig {
   public:
    // Throws Error (does_not_fit, storage).
    DeviceRatesRig(const std::string& directory, std::uint64_t bytes, Interruption& stop);
    // `seconds` each of reads, of writes, of both.
    DeviceRates measure(double seconds);
    // Of both, beside so many threads that compute.
    zero::Contention contention(double seconds, unsigned threads, const DeviceRates& rates);
    const std::vector<std::string>& notes() const noexcept { return rig_.notes(); }
    bool direct() const noexcept { return file_.file().direct(); }

   private:
    double rate(Work work, double seconds);

    BenchFile file_;
    IoRig rig_;
    Interruption& stop_;
};

// Seconds per byte of the hash of tiles that no cache holds, on one core.
double hash_seconds_per_byte(double seconds);

}  // namespace penstock::bench
