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
// even; 0 for a block of zeros, otherwise in [2^-47, 65504]. Relative error 2^-11, fine enough that S shrinks with v
// when gradients end, for beta2 up to 0.999; a step of 0.9999 is rounded away, and v would stay.
//
// m.  y = 2x / (1 + |x|) with x = m / S, code = round(127 y), ties to even; back: m = S c / (254 - |c|).
//   |decoded - m| <= S / 125 at the largest, S / 500 near zero. Zero stays zero (without its sign).
// v.  code = round(255 sqrt(v) / S), ties to even, at least 1 when v > 0; back: v = (S c / 255)^2.
//   |sqrt(decoded) - sqrt(v)| <= S / 254. Zero stays zero, and v > 0 stays above zero:
//
// The danger in storing v is the quotient of the next update: with v rounded to 0 and g = 0, m / (sqrt(v) + eps) is up
// to m / eps, 10^8 learning rates. Here it is bounded, for AdamW's betas b1, b2 and the block's scales S_m, S_v. A
// gradient g leaves sqrt(v) >= sqrt(1 - b2) |g| at its step; each later step takes half a code from that at most, and
// never goes below code 1, S_v / 255, while m forgets g as b1^k. Summed over the past, with S_v about steady,
//   |m| / sqrt(v) <= (1 + b1 / (2 (1 - b1))) / sqrt(1 - b2), 174 for (0.9, 0.999),
// and m's own rounding, S_m / 500 per step where m is small and 10 of those in all, adds 5 S_m / S_v, where S_m is at
// most 32 S_v: below 340 learning rates, once; exact AdamW goes to 7.3.
//
// What can last. A change of less than half a code in a step is lost, and lost again in the next one. Gradients that
// vary from step to step, as a training's do, carry codes over it in both directions; what does not vary can stick:
//   * m of code c stays when (1 - b) c < 1/2: for b1 = 0.9 codes up to 5 of an element whose gradients have ended, for
//     b = 0.99 (Lion's beta2, a momentum) up to 50, from b = 0.996 on every code. A sign or a momentum can then point
//     the old way for good.
//   * v of code c stays when (1 - b2) c / 2 < 1/2, for b2 = 0.999 every code: it falls only with its block's scale,
//     that is with the largest v of 32 neighbours. It rises when g^2 is large enough beside it: under a steady gradient
//     sqrt(v) stops at 0.79 of |g| for b2 = 0.999 (steps 1.27 times as long), and one below 0.14 S_v does not lift its
//     v from code 1, an update of up to 24 learning rates instead of 1.
//   * b2 above 0.999: scales stay as well.
//   * a sum that never forgets (Adagrad's) stops growing after some thousand steps: MomentKind::growing_sum is refused
//     for lossy codecs (Session).
#pragma once

#include <cstddef>
#include <cstdint>

namespace penstock::zero {

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
// The smaller of x and 1, by its bits: 1 for NaN. REQUIRES: the sign of x is not set.
[[gnu::always_inline]] inline constexpr float compact_at_most_one(float x) noexcept {
    constexpr std::int32_t one = 0x3f800000;
    const auto bits = __builtin_bit_cast(std::int32_t, x);
    return __builtin_bit_cast(float, bits < one ? bits : one);
}
[[gnu::always_inline]] inline constexpr std::uint8_t compact_signed_code(float value, float inverse) noexcept {
    const auto bits = __builtin_bit_cast(std::uint32_t, value);
    const float x = compact_at_most_one(__builtin_bit_cast(float, bits & 0x7fffffffU) * inverse);
    const std::uint32_t negative = 0U - (bits >> 31);  // all bits or none
    const std::uint32_t code = compact_round(254.0F * x / (1.0F + x));
    return static_cast<std::uint8_t>((code ^ negative) - negative);
}
[[gnu::always_inline]] inline constexpr float compact_signed_value(std::uint8_t code, float scale) noexcept {
    const auto c = static_cast<float>(static_cast<std::int8_t>(code));
    return scale * (c / (254.0F - (c < 0 ? -c : c)));
}
// 0 for a negative value, which no square is.
[[gnu::always_inline]] inline float compact_root(float value) noexcept {
    const auto bits = __builtin_bit_cast(std::int32_t, value);
    return __builtin_sqrtf(__builtin_bit_cast(float, bits > 0 ? bits : 0));
}
[[gnu::always_inline]] inline constexpr std::uint8_t compact_root_code(float root, float inverse) noexcept {
    const float x = 255.0F * compact_at_most_one(root * inverse);
    const float least = __builtin_bit_cast(std::int32_t, root) > 0 ? 1.0F : 0.0F;
    return static_cast<std::uint8_t>(compact_round(x > least ? x : least));
}
// `unit` is scale / 255.
[[gnu::always_inline]] inline constexpr float compact_square_value(std::uint8_t code, float unit) noexcept {
    const float root = static_cast<float>(code) * unit;
    return root * root;
}

}  // namespace penstock::zero
