// What a measured section moves and takes.
#pragma once

#include <chrono>
#include <cstdint>

namespace penstock::zero {

struct Moved {
    std::uint64_t bytes = 0;
    double seconds = 0;
    double cpu_seconds = 0;     // of the process
    double thread_seconds = 0;  // of them, of the thread that measures

    double bytes_per_second() const noexcept { return static_cast<double>(bytes) / seconds; }
    double gigabytes_per_second() const noexcept { return static_cast<double>(bytes) / 1e9 / seconds; }
    double cpu_seconds_per_gigabyte() const noexcept { return cpu_seconds / (static_cast<double>(bytes) / 1e9); }
};

// Starts when it is made; stopped by the same thread. Of the processors it counts user and system time: the process's
// of all its threads, those included that the kernel runs for a ring on its account (io-wq).
class Stopwatch {
   public:
    Stopwatch() noexcept;
    std::chrono::steady_clock::time_point begin() const noexcept { return begin_; }
    double seconds() const noexcept {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
    }
    Moved stop(std::uint64_t bytes) const noexcept;

   private:
    double cpu_seconds_;
    double thread_seconds_;
    std::chrono::steady_clock::time_point begin_;
};

}  // namespace penstock::zero
