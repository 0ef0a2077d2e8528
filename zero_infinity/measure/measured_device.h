// What the run's devices give the run's own I/O within a second or two: its chunks, its bytes in flight, its backend.
#pragma once

#include "aio/backend.h"
#include "aio/file.h"
#include "aio/io.h"
#include "zero_infinity/forecast/virtual_device.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::zero {

struct DeviceQuestion {
    std::vector<std::string> directories;  // one per device; those that are not there yet: the nearest parent that is
    aio::IoLimits limits;
    std::optional<aio::BackendKind> backend;
    aio::Caching caching = aio::Caching::direct;
    std::uint64_t file_bytes = 256ULL << 20;  // on each
    double seconds = 0.4;                     // of each measurement
    unsigned compute_threads = 1;             // of the step that the device works beside
    unsigned cores = 1;
};

struct MeasuredDevice {
    DeviceRates rates;          // of all of them together
    Contention contention;
    double driver_per_byte = 0;       // seconds of the thread that submits
    double flush = 0;                 // seconds until what was just written is durable, and a small record after it
    std::vector<std::string> places;  // where it was measured
    std::vector<std::string> notes;
};

// Writes to files that have no name any more, so that nothing stays whatever happens. Throws Error (does_not_fit,
// storage) naming the directory.
MeasuredDevice measure_device(const DeviceQuestion& question);

}  // namespace penstock::zero
