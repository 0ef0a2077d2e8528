// What ZeRO's stages take of each device, as its authors count it. Pure.
#pragma once

#include <array>
#include <cstdint>

namespace penstock::zero {

// By stage, 0 to 3: bytes of a rank's weights, gradients and states, all in its device's memory, of a model in 16 bits
// with states of K = 12 bytes a parameter (Rajbhandari et al., ZeRO, SC 2020, figure 1). Example: of 7.5 G parameters
// over 64 ranks 120, 31.4, 16.6 and 1.9 GB.
std::array<double, 4> zero_stage_bytes(std::uint64_t parameters, std::uint32_t ranks) noexcept;

}  // namespace penstock::zero
