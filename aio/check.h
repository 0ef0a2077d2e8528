// Programmer errors. A failed check is a bug in the caller: it prints where and what, then aborts.
#pragma once

#include <fmt/format.h>

#include <source_location>
#include <string_view>

namespace penstock {

[[noreturn]] void check_failed(std::string_view condition, std::string_view detail, std::source_location where);

}  // namespace penstock

// Always on, also in release builds: PENSTOCK_CHECK(cond, "tile {} of {}", tile, count). The detail is formatted only
// on failure. A macro because it must quote its condition and not evaluate its detail.
#define PENSTOCK_CHECK(condition, ...)                                                                         \
    do {                                                                                                       \
        if (!(condition)) [[unlikely]]                                                                         \
            ::penstock::check_failed(#condition, ::fmt::format(__VA_ARGS__), std::source_location::current()); \
    } while (false)
