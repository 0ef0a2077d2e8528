#include "zero_infinity/option_check.h"

#include "aio/error.h"

#include <fmt/format.h>

#include <cmath>

namespace penstock {

void OptionCheck::is_decay(const char* option, double value) const {
    holds(value >= 0 && value < 1, option, value, "at least 0 and less than 1");
}

void OptionCheck::is_not_negative(const char* option, double value) const {
    holds(value >= 0 && std::isfinite(value), option, value, "finite and at least 0");
}

void OptionCheck::is_positive_as_fp32(const char* option, double value) const {
    holds(static_cast<float>(value) > 0 && std::isfinite(value), option, value,
          "finite and, rounded to fp32, greater than 0");
}

void OptionCheck::holds(bool condition, const char* option, double value, const char* range) const {
    if (!condition)
        throw Error(ExitCode::usage,
                    fmt::format("optimizer {}: {} is {}; it must be {}", optimizer_, option, value, range));
}

}  // namespace penstock
