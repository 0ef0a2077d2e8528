// What a measured section costs the processors.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::bench {

struct Moved {
    std::uint64_t bytes = 0;
    double seconds = 0;
    double cpu_seconds = 0;

    double gigabytes_per_second() const noexcept { return static_cast<double>(bytes) / 1e9 / seconds; }
    double cpu_seconds_per_gigabyte() const noexcept { return cpu_seconds / (static_cast<double>(bytes) / 1e9); }
};

// User and system time of all threads of this process so far, those included that the kernel runs for a ring on the
// process's account (io-wq).
double process_cpu_seconds() noexcept;

// Starts when it is made.
class Stopwatch {
   public:
    Stopwatch() noexcept : cpu_seconds_(process_cpu_seconds()), begin_(std::chrono::steady_clock::now()) {}
    std::chrono::steady_clock::time_point begin() const noexcept { return begin_; }
    double seconds() const noexcept {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    Moved stop(std::uint64_t bytes) const noexcept;

   private:
    double cpu_seconds_;
    std::chrono::steady_clock::time_point begin_;
};

}  // namespace penstock::bench
