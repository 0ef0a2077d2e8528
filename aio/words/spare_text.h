// Words for an error where nothing may throw: without memory for them, fewer.
#pragma once

#include <new>
#include <string>
#include <utility>

namespace penstock {

// `build` returns the text. What is said instead fits into a string that allocates nothing (libstdc++: 15 bytes).
template <typename Build>
std::string text_or_less(Build&& build) noexcept {
    try {
        return std::forward<Build>(build)();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    }
}

}  // namespace penstock
