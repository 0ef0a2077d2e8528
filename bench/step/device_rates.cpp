#include "bench/step/device_rates.h"

#include "bench/harness/interruption.h"
#include "zero_infinity/measure/busy_cores.h"

namespace penstock::bench {
namespace {

constexpr std::uint32_t block_bytes = 1U << 20;
constexpr std::uint64_t depth = 8;

zero::RigOptions options_with(Interruption& stop) {
    zero::RigOptions options = zero::plain_rig(block_bytes, depth * block_bytes);
    options.lease_bytes.resize(2 * depth, block_bytes);  // for both directions at once
    options.asking = stop.asking();
    return options;
}

}  // namespace

DeviceRatesRig::DeviceRatesRig(const std::string& directory, const std::string& name, std::uint64_t bytes,
                               Interruption& stop)
    : file_(directory, name, bytes / block_bytes * block_bytes), rig_(file_.file(), options_with(stop)) {
    write_once();  // reading what was never written is no reading, and the first time over no overwriting
}

double DeviceRatesRig::rate(zero::BlockWork work, double seconds) {
    zero::BlockSource source(file_.file(), {.work = work, .block_bytes = block_bytes, .file_bytes = file_.bytes()});
    return rig_.run(source, seconds).bytes_per_second();
}

DeviceRates DeviceRatesRig::measure(double seconds) {
    return {.read = rate(zero::BlockWork::read, seconds),
            .write = rate(zero::BlockWork::write, seconds),
            .both = rate(zero::BlockWork::half_each, seconds)};
}

zero::Contention DeviceRatesRig::contention(double seconds, unsigned threads, const DeviceRates& rates) {
    return zero::measure_contention(threads, seconds, rates.both,
                                    [&](double slice) { return rate(zero::BlockWork::half_each, slice); });
}

double DeviceRatesRig::write_once() {
    zero::BlockSource once(
        file_.file(),
        {.work = zero::BlockWork::write, .block_bytes = block_bytes, .file_bytes = file_.bytes(), .once = true});
    return rig_.run(once).seconds;
}

double DeviceRatesRig::durable_rate() {
    const aio::TransferRequest flush{.kind = aio::IoKind::flush, .file = &file_.file()};
    const double written = write_once();
    return static_cast<double>(file_.bytes()) / (written + rig_.run({&flush, 1}).seconds);
}

}  // namespace penstock::bench
