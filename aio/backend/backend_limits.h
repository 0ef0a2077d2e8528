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
