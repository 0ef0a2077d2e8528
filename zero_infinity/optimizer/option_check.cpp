#include "zero_infinity/optimizer/option_check.h"

#include "aio/words/error.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

namespace penstock::zero {
namespace {

// The kernels work in fp32, where a larger one would be infinity.
bool finite_as_fp32(double value) {
    return std::abs(value) <= std::numeric_limits<float>::max();
}

}  // namespace

void OptionCheck::is_decay(const char* option, double value) const {
    holds(value >= 0 && value < 1, option, value, "at least 0 and less than 1");
}

void OptionCheck::is_finite(const char* option, double value) const {
    holds(finite_as_fp32(value), option, value, "finite in fp32");
}

void OptionCheck::is_not_negative(const char* option, double value) const {
    holds(value >= 0 && finite_as_fp32(value), option, value, "at least 0 and finite in fp32");
}

void OptionCheck::is_positive_as_fp32(const char* option, double value) const {
    holds(finite_as_fp32(value) && static_cast<float>(value) > 0, option, value,
          "finite and, rounded to fp32, greater than 0");
}

void OptionCheck::holds(bool condition, const char* option, double value, const char* range) const {
    if (!condition)
        throw Error(ExitCode::usage,
                    fmt::format("optimizer {}: {} is {}; it must be {}", optimizer_, option, value, range));
}

}  // namespace penstock::zero
