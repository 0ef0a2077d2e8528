#include "bench/harness/cpu_time.h"

#include <sys/resource.h>

namespace penstock::bench {

double process_cpu_seconds() noexcept {
    rusage usage = {};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

Moved Stopwatch::stop(std::uint64_t bytes) const noexcept {
    const double elapsed = seconds();
    return {.bytes = bytes, .seconds = elapsed, .cpu_seconds = process_cpu_seconds() - cpu_seconds_};
}

}  // namespace penstock::bench
