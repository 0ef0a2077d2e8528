// Programmer errors. A failed check is a bug in the caller: it prints where and what, then aborts.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace penstock {

[[noreturn]] void check_failed(std::string_view condition, std::string_view detail, const char* file, int line);

}  // namespace penstock

// Always on, also in release builds: PENSTOCK_CHECK(cond, "tile {} of {}", tile, count). The detail is formatted only
// on failure. A macro because it must quote its condition and not evaluate its detail. (clang 14 has no
// std::source_location with libstdc++.)
#define PENSTOCK_CHECK(condition, ...)                                                            \
    do {                                                                                          \
        if (!(condition)) [[unlikely]]                                                            \
            ::penstock::check_failed(#condition, ::fmt::format(__VA_ARGS__), __FILE__, __LINE__); \
    } while (false)
