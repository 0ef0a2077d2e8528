// The 16-bit float formats as bits: conversions from and to fp32, rounded to nearest, ties to even.
//
// Integer arithmetic and selections only, so that a loop over them becomes vector code on any instruction set, with
// the same bits. Always inlined and free of the standard library: kernel twins compiled for newer processors
// (kernels.h) must not leave a copy behind that the linker could give to the other files.
#pragma once

#include <cstdint>

namespace penstock::zero {

[[gnu::always_inline]] inline constexpr float bf16_to_fp32(std::uint16_t bits) noexcept {
    return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

// As c10::BFloat16: every NaN becomes 0x7fc0.
[[gnu::always_inline]] inline constexpr std::uint16_t fp32_to_bf16(float value) noexcept {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
    const bool is_nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return static_cast<std::uint16_t>(is_nan ? 0x7fc0U : rounded);
}

// Exact. A NaN keeps its payload.
[[gnu::always_inline]] inline constexpr float fp16_to_fp32(std::uint16_t bits) noexcept {
    const std::uint32_t sign = (bits & 0x8000U) << 16;
    const std::uint32_t shifted = (bits & 0x7fffU) << 13;
    const std::uint32_t exponent = shifted & 0x0f800000U;
    const std::uint32_t normal = shifted + (112U << 23);  // exponent bias 15 → 127
    const std::uint32_t special = normal + (112U << 23);  // exponent 31 → 255
    // A subnormal is its mantissa in units of 2^-24: put it behind the leading one of 2^-14, then take that one away.
    const float subnormal = __builtin_bit_cast(float, normal + (1U << 23)) - 0x1p-14F;
    const std::uint32_t tiny = __builtin_bit_cast(std::uint32_t, subnormal);
    const std::uint32_t magnitude = exponent == 0 ? tiny : exponent == 0x0f800000U ? special : normal;
    return __builtin_bit_cast(float, sign | magnitude);
}

// From 65520 on (halfway between the largest fp16 and 2^16) infinity; every NaN becomes 0x7e00 with its sign, as
// c10::Half.
[[gnu::always_inline]] inline constexpr std::uint16_t fp32_to_fp16(float value) noexcept {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t sign = (bits >> 16) & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    // Normal: bias 127 → 15, then round the 13 bits that go; a carry runs into the exponent, up to infinity.
    const std::uint32_t rebiased = magnitude - (112U << 23);
    const std::uint32_t normal = (rebiased + 0xfffU + ((rebiased >> 13) & 1U)) >> 13;
    // Subnormal: the last place of 0.5F is 2^-24, the unit of fp16's subnormals, so this addition rounds as wanted.
    const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;
    const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U;
    const std::uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
    const std::uint32_t rounded = magnitude < 0x38800000U ? subnormal : magnitude < 0x47800000U ? normal : special;
    return static_cast<std::uint16_t>(sign | rounded);
}

}  // namespace penstock::zero
