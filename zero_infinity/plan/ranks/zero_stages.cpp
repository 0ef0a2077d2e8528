#include "zero_infinity/plan/ranks/zero_stages.h"

namespace penstock::zero {

std::array<double, 4> zero_stage_bytes(std::uint64_t parameters, std::uint32_t ranks) noexcept {
    constexpr double weights = 2, gradients = 2, states = 12;
    const auto all = static_cast<double>(parameters);
    const double part = all / static_cast<double>(ranks);
    return {(weights + gradients + states) * all, (weights + gradients) * all + states * part,
            weights * all + (gradients + states) * part, (weights + gradients + states) * part};
}

}  // namespace penstock::zero
