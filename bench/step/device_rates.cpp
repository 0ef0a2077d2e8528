#include "bench/step/device_rates.h"

#include "pinned_pool/region.h"
#include "swap/format/hash.h"
#include "zero_infinity/measure/busy_cores.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace penstock::bench {
namespace {

constexpr std::uint32_t block_bytes = 1U << 20;
constexpr std::size_t depth = 8;
constexpr std::size_t tile_bytes = 4U << 20;
constexpr std::size_t beyond_caches_bytes = 256U << 20;

}  // namespace

DeviceRatesRig::DeviceRatesRig(const std::string& directory, std::uint64_t bytes, Interruption& stop)
    : file_(directory, "rates", bytes / block_bytes * block_bytes),
      rig_(file_.file(), {.lease_bytes = std::vector<std::size_t>(2 * depth, block_bytes),
                          .limits = plain_limits(block_bytes, depth * block_bytes),
                          .backend = {},
                          .registration = RingRegistration::wanted}),
      stop_(stop) {
    // Reading what was never written is no reading.
    BlockSource once(file_.file(),
                     {.work = Work::write, .block_bytes = block_bytes, .file_bytes = file_.bytes(), .once = true});
    rig_.run(once, {}, stop_);
}

double DeviceRatesRig::rate(Work work, double seconds) {
    BlockSource source(file_.file(), {.work = work, .block_bytes = block_bytes, .file_bytes = file_.bytes()});
    const Moved moved = rig_.run(source, seconds, stop_);
    return static_cast<double>(moved.bytes) / moved.seconds;
}

DeviceRates DeviceRatesRig::measure(double seconds) {
    return {
        .read = rate(Work::read, seconds), .write = rate(Work::write, seconds), .both = rate(Work::half_each, seconds)};
}

zero::Contention DeviceRatesRig::contention(double seconds, unsigned threads, const DeviceRates& rates) {
    return zero::measure_contention(threads, seconds, rates.both,
                                    [&](double slice) { return rate(Work::half_each, slice); });
}

double hash_seconds_per_byte(double seconds) {
    const pool::Region memory(beyond_caches_bytes, 1, pool::Registration::none);
    const Stopwatch watch;
    std::uint64_t tiles = 0;
    store::TileHash last;
    do {
        const std::span tile(memory.data() + tiles * tile_bytes % beyond_caches_bytes, tile_bytes);
        last = store::hash_tile(tile, {.store = last.low, .object = 0, .tile = 0, .generation = ++tiles});
    } while (watch.seconds() < seconds);
    return watch.seconds() / static_cast<double>(tiles * tile_bytes);
}

}  // namespace penstock::bench
