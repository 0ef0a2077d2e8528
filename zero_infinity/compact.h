// The arithmetic of the codec `compact`: 24 bits of the master and 8 bits of each moment. Lossy, opt-in.
//
// Sources. 8-bit moments with a scale per block: Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via
// Block-wise Quantization", ICLR 2022 (arXiv:2110.02861). Companding functions, blocks of 32 and a bf16 weight with an
// 8-bit residual: Gonzalez Ortiz, Gupta, Rinard, Blalock, "FlashOptim: Optimizers for Memory-Efficient Training", 2026
// (arXiv:2602.23349), whose evidence goes to models of 8 B parameters. Here: their functions for m and v; the residual
// is cut from the bits as `split` does it; scales have a wider range, and the code of a v above zero is never zero.
//
// Master. x is rounded to 24 bits (sign, exponent, 15 bits of mantissa; ties to even; a finite x stays finite) and
// that number is cut in two as `split` cuts 32 bits: the weight is the stored master rounded to bf16 with ties away
// from zero, the residual r in [-128, 127] counts 1/256 of the step from one bf16 to the next below it.
//   |decoded - x| <= 2^-16 |x|, for subnormal x <= 2^-142. Zeros keep their sign, infinity stays, NaN stays NaN.
//
// Scales. S = the largest |m| (or sqrt(v)) of 32 neighbours in 16 bits: 6 of exponent, 10 of mantissa, no sign, ties to
// even; 0 for a block of zeros, otherwise in [2^-47, 65504]. Relative error 2^-11, fine enough that S follows v when
// it shrinks by beta2 >= 0.999 per step; a beta2 above it (0.9999) is rounded away: v would never shrink.
//
// m.  y = 2x / (1 + |x|) with x = m / S, code = round(127 y), ties to even; back: m = S c / (254 - |c|).
//   |decoded - m| <= S / 125 at the largest, S / 500 near zero. Zero stays zero (without its sign).
// v.  code = round(255 sqrt(v) / S), ties to even, at least 1 when v > 0; back: v = (S c / 255)^2.
//   |sqrt(decoded) - sqrt(v)| <= S / 254. Zero stays zero, and v > 0 stays above zero:
//
// The danger in storing v is the quotient of the next update: with v rounded to 0 and g = 0, m / (sqrt(v) + eps) is up
// to m / eps, 10^8 steps of the learning rate. Here sqrt(v) is stored as S_v/255 at least, and AdamW's own moments obey
// |m| <= C sqrt(v) with C = (1 - b1) / sqrt((1 - b2) (1 - b1²/b2)), 7.3 for (0.9, 0.999). So S_m <= C S_v, and what is
// decoded obeys |m| <= 3 C sqrt(v): code 1 of v stands for sqrt(v) up to 1.5 S_v/255, to which m's error near there
// adds less than 1.5 C S_v/255. The update of one step stays below 3 C learning rates, 22 for those betas; a code of v
// does not move for a gradient that changes sqrt(v) by less than S_v/510 in one step, so that such a quotient can last.
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock {

inline constexpr std::size_t compact_block = 32;        // elements of one scale
inline constexpr float compact_least_scale = 0x1p-47F;  // of a block that is not all zeros
inline constexpr float compact_largest_scale = 65504.0F;

// As float16.h: always inlined and free of the standard library, for the kernel twins. No function branches.
[[gnu::always_inline]] inline constexpr std::uint32_t compact_master(float value) noexcept {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    const std::uint32_t rounded = (magnitude + 0x7fU + ((magnitude >> 8) & 1U)) >> 8;
    const std::uint32_t finite = rounded < 0x7f7fffU ? rounded : 0x7f7fffU;
    const std::uint32_t special = magnitude == 0x7f800000U ? 0x7f8000U : 0x7fc000U;
    return ((bits >> 8) & 0x800000U) | (magnitude < 0x7f800000U ? finite : special);
}
[[gnu::always_inline]] inline constexpr std::uint16_t compact_weight(std::uint32_t master) noexcept {
    return static_cast<std::uint16_t>((master + 0x80U) >> 8);
}
[[gnu::always_inline]] inline constexpr std::uint8_t compact_residual(std::uint32_t master) noexcept {
    return static_cast<std::uint8_t>(master);
}
[[gnu::always_inline]] inline constexpr float compact_join(std::uint16_t weight, std::uint8_t residual) noexcept {
    const std::uint32_t borrow = (residual & 0x80U) << 1;  // rounding carried into the weight: take it back
    return __builtin_bit_cast(float, (((static_cast<std::uint32_t>(weight) << 8) - borrow) | residual) << 8);
}

// From the bits of a magnitude, so that the largest of a block is found by comparing integers.
[[gnu::always_inline]] inline constexpr std::uint16_t compact_scale(std::uint32_t magnitude) noexcept {
    constexpr std::uint32_t least = 80U << 23;  // 2^-47
    const std::uint32_t raised = magnitude > least ? magnitude : least;
    const std::uint32_t code = ((raised + 0xfffU + ((raised >> 13) & 1U)) >> 13) - (79U << 10);
    return static_cast<std::uint16_t>(magnitude == 0 ? 0U : code < 0xffffU ? code : 0xffffU);
}
[[gnu::always_inline]] inline constexpr float compact_scale_value(std::uint16_t code) noexcept {
    return code == 0 ? 0.0F : __builtin_bit_cast(float, (code + (79U << 10)) << 13);
}
// 1 / scale, 0 for 0: a block of zeros has codes of zero.
[[gnu::always_inline]] inline constexpr float compact_inverse(float scale) noexcept {
    return scale > 0 ? 1.0F / scale : 0.0F;
}

// The nearest integer in [0, 255], ties to even: the last place of 1.5 × 2^23 is 1.
[[gnu::always_inline]] inline constexpr std::uint32_t compact_round(float value) noexcept {
    return __builtin_bit_cast(std::uint32_t, value + 0x1.8p23F) & 0xffU;
}
[[gnu::always_inline]] inline constexpr std::uint8_t compact_signed_code(float value, float inverse) noexcept {
    const float magnitude = (value < 0 ? -value : value) * inverse;
    const float x = magnitude < 1 ? magnitude : 1.0F;  // also for NaN
    const std::uint32_t code = compact_round(254.0F * x / (1.0F + x));
    return static_cast<std::uint8_t>(value < 0 ? 0U - code : code);
}
[[gnu::always_inline]] inline constexpr float compact_signed_value(std::uint8_t code, float scale) noexcept {
    const auto c = static_cast<float>(static_cast<std::int8_t>(code));
    return scale * (c / (254.0F - (c < 0 ? -c : c)));
}
[[gnu::always_inline]] inline constexpr float compact_root(float value) noexcept {
    return __builtin_sqrtf(value > 0 ? value : 0.0F);
}
[[gnu::always_inline]] inline constexpr std::uint8_t compact_root_code(float root, float inverse) noexcept {
    const float x = root * inverse;
    const std::uint32_t code = compact_round(255.0F * (x < 1 ? x : 1.0F));
    return static_cast<std::uint8_t>(code == 0 && root > 0 ? 1U : code);
}
// `unit` is scale / 255.
[[gnu::always_inline]] inline constexpr float compact_square_value(std::uint8_t code, float unit) noexcept {
    const float root = static_cast<float>(code) * unit;
    return root * root;
}

}  // namespace penstock
