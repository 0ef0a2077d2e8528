#include "zero_infinity/measure/stopwatch.h"

#include <sys/resource.h>

namespace penstock::zero {
namespace {

double cpu_seconds_of(int whose) noexcept {
    rusage usage = {};
    ::getrusage(whose, &usage);
    const auto seconds = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

}  // namespace

Stopwatch::Stopwatch() noexcept
    : cpu_seconds_(cpu_seconds_of(RUSAGE_SELF)),
      thread_seconds_(cpu_seconds_of(RUSAGE_THREAD)),
      begin_(std::chrono::steady_clock::now()) {}

Moved Stopwatch::stop(std::uint64_t bytes) const noexcept {
    return {.bytes = bytes,
            .seconds = seconds(),
            .cpu_seconds = cpu_seconds_of(RUSAGE_SELF) - cpu_seconds_,
            .thread_seconds = cpu_seconds_of(RUSAGE_THREAD) - thread_seconds_};
}

}  // namespace penstock::zero
