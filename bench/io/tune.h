// `--tune`: block size and bytes in flight of a device, measured; `--sustained`: what its writes come down to.
#pragma once

#include "aio/profile.h"
#include "bench/harness/change_point.h"
#include "bench/io/io_bench.h"

namespace penstock::bench {

// Measures reads and overwrites at a grid of blocks × bytes in flight, chooses (bench/io/tune_choice.h), measures the
// first write there, and fills the profile.
void tune(IoBench& bench, aio::DeviceProfile& profile);

// Writes until --sustained-bytes are written or --seconds are over, once into fresh blocks and once more over them, and
// fills the profile with the rate that remains (bench/harness/change_point.h).
void measure_sustained(IoBench& bench, aio::DeviceProfile& profile);
// Where nothing fell, the cache may still have room: the profile gets no rate, for nobody knows what comes after it,
// and keeps none of before.
void put_sustained(aio::DeviceProfile& profile, const SustainedRate& found) noexcept;
std::uint64_t sustained_file_bytes(const IoBenchOptions& options);

}  // namespace penstock::bench
