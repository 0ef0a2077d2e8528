// What the backends have in common: how many attempts one takes, how long it waits, and how it is refused.
#pragma once

#include "aio/backend.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>

namespace penstock::aio {

inline constexpr std::size_t max_backend_depth = 4096;
inline constexpr std::chrono::nanoseconds longest_backend_wait =
    std::chrono::hours(1);  // the kernel adds it to a clock

// What a call to the kernel brings waits there (in its plug) until the call has brought all, and the device starts
// late. On one host (Intel) reads and writes of 256 KiB and 1 MiB then moved 0.7 to 0.8 of what they moved called for
// one by one; on another (AMD) calls for one by one are the faster at 1 MiB and the slower at 64 KiB
// (bench/results/2026-11-23-one-call-for-each-request.md). One by one keeps up with fio on both. Small attempts go in
// pairs: their calls cost more than they gain.
inline constexpr std::uint32_t small_attempt_bytes = 64U << 10;  // below it
inline constexpr std::size_t small_attempts_per_call = 2;

// Attempts that a backend holds back until they are worth a call. Not thread-safe.
class HeldBack {
   public:
    // Counts one more; true: all that is held is to be handed over now.
    bool add(const Attempt& attempt) noexcept {
        ++count_;
        large_ = large_ || attempt.bytes >= small_attempt_bytes;
        return large_ || count_ >= small_attempts_per_call;
    }
    void clear() noexcept { *this = {}; }

   private:
    std::size_t count_ = 0;
    bool large_ = false;
};

// REQUIRES: 1 <= depth <= max_backend_depth. Returns it, for the first initialiser of a constructor.
std::size_t checked_depth(std::size_t depth);

// For timespec and its twins. What is negative is no wait, what is longer than longest_backend_wait is cut.
template <typename Timespec>
Timespec bounded_timespec(std::chrono::nanoseconds wait) {
    const auto bounded = std::clamp(wait, std::chrono::nanoseconds(0), longest_backend_wait);
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(bounded);
    return {.tv_sec = seconds.count(), .tv_nsec = (bounded - seconds).count()};
}

// Throws Error (storage): "io_setup: Resource temporarily unavailable (EAGAIN); <cause>".
[[noreturn]] void refuse_backend(const char* call, int errno_value, const std::string& cause);

}  // namespace penstock::aio
