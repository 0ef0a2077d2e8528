// Bit patterns of fp32 to try, and rounding that shares nothing with the bit arithmetic under test.
#pragma once

#include "tests/seeds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace penstock::test {

// The nearest value with `digits` binary digits and at least the exponent `min_exponent`, from `limit` on infinity:
// written with library functions on doubles.
template <typename Round>
double rounded(double value, int digits, int min_exponent, double limit, Round round) {
    if (value == 0 || !std::isfinite(value)) return value;
    const int exponent = std::max(std::ilogb(value), min_exponent);
    const double result = std::ldexp(round(std::ldexp(value, digits - 1 - exponent)), exponent - digits + 1);
    return std::abs(result) >= limit ? std::copysign(std::numeric_limits<double>::infinity(), value) : result;
}
inline double ties_away(double x) {
    return std::round(x);
}
inline double ties_even(double x) {
    return std::nearbyint(x);
}

inline bool same_value(double a, double b) {
    return a == b ? std::signbit(a) == std::signbit(b) : std::isnan(a) && std::isnan(b);
}

// Lower halves around every edge and some at random, to be tried with all 2^16 upper halves; all 2^16 of them with the
// flag --all-patterns.
inline std::vector<std::uint32_t> lower_halves(std::size_t count) {
    std::set<std::uint32_t> lows{0,      1,      2,      0x7f,   0x80,   0x81,   0x0fff, 0x1000,
                                 0x1001, 0x2000, 0x7f7f, 0x7f80, 0x7ffe, 0x7fff, 0x8000, 0x8001,
                                 0x8002, 0x8080, 0xff7f, 0xff80, 0xfffe, 0xffff};
    if (seed_options().all_patterns) {
        for (std::uint32_t low = 0; low < 0x10000; ++low) lows.insert(low);
        std::printf("RESULT %s: all 2^32 bit patterns\n",
                    ::testing::UnitTest::GetInstance()->current_test_info()->name());
    }
    std::mt19937 random(20240817);
    while (lows.size() < count) lows.insert(random() & 0xffffU);
    return {lows.begin(), lows.end()};
}

}  // namespace penstock::test
