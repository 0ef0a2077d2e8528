// The loops of the codec `compact`, part of kernels_body.h (same rules).
#pragma once

#include "zero_infinity/kernels/compact.h"

namespace penstock::zero {
namespace {

void split_compact(const float* __restrict value, std::uint16_t* __restrict weights, std::uint8_t* __restrict residuals,
                   std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t master = compact_master(value[i]);
        weights[i] = compact_weight(master);
        residuals[i] = compact_residual(master);
    }
}

void join_compact(const std::uint16_t* __restrict weights, const std::uint8_t* __restrict residuals,
                  float* __restrict value, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) value[i] = compact_join(weights[i], residuals[i]);
}

// The largest of a block by its bits: magnitudes of floats are ordered as integers, and integers need no rule for NaN.
[[gnu::always_inline]] inline std::uint16_t scale_of(const float* __restrict block) noexcept {
    std::int32_t largest = 0;
    for (std::size_t i = 0; i < compact_block; ++i) {
        const auto magnitude = static_cast<std::int32_t>(__builtin_bit_cast(std::uint32_t, block[i]) & 0x7fffffffU);
        largest = magnitude > largest ? magnitude : largest;
    }
    return compact_scale(static_cast<std::uint32_t>(largest));
}

void encode_signed_block(const float* __restrict moment, std::uint8_t* __restrict codes,
                         std::uint16_t* __restrict scale) noexcept {
    *scale = scale_of(moment);
    const float inverse = compact_inverse(compact_scale_value(*scale));
    for (std::size_t i = 0; i < compact_block; ++i) codes[i] = compact_signed_code(moment[i], inverse);
}

void encode_squares_block(const float* __restrict moment, std::uint8_t* __restrict codes,
                          std::uint16_t* __restrict scale) noexcept {
    float roots[compact_block];
    for (std::size_t i = 0; i < compact_block; ++i) roots[i] = compact_root(moment[i]);
    *scale = scale_of(roots);
    const float inverse = compact_inverse(compact_scale_value(*scale));
    for (std::size_t i = 0; i < compact_block; ++i) codes[i] = compact_root_code(roots[i], inverse);
}

// A last block that is not whole is encoded as if zeros followed it.
template <typename EncodeBlock>
[[gnu::always_inline]] inline void encode_blocks(EncodeBlock encode_block, const float* moment, std::uint8_t* codes,
                                                 std::uint16_t* scales, std::size_t count) noexcept {
    std::size_t first = 0;
    for (; first + compact_block <= count; first += compact_block)
        encode_block(moment + first, codes + first, scales + first / compact_block);
    if (first == count) return;
    float padded[compact_block] = {};
    std::uint8_t padded_codes[compact_block];
    for (std::size_t i = 0; first + i < count; ++i) padded[i] = moment[first + i];
    encode_block(padded, padded_codes, scales + first / compact_block);
    for (std::size_t i = 0; first + i < count; ++i) codes[first + i] = padded_codes[i];
}

void encode_signed(const float* moment, std::uint8_t* codes, std::uint16_t* scales, std::size_t count) noexcept {
    encode_blocks(encode_signed_block, moment, codes, scales, count);
}

void encode_squares(const float* moment, std::uint8_t* codes, std::uint16_t* scales, std::size_t count) noexcept {
    encode_blocks(encode_squares_block, moment, codes, scales, count);
}

void decode_signed(const std::uint8_t* __restrict codes, const std::uint16_t* __restrict scales,
                   float* __restrict moment, std::size_t count) noexcept {
    for (std::size_t first = 0; first < count; first += compact_block) {
        const float scale = compact_scale_value(scales[first / compact_block]);
        const std::size_t length = count - first < compact_block ? count - first : compact_block;
        for (std::size_t i = 0; i < length; ++i) moment[first + i] = compact_signed_value(codes[first + i], scale);
    }
}

void decode_squares(const std::uint8_t* __restrict codes, const std::uint16_t* __restrict scales,
                    float* __restrict moment, std::size_t count) noexcept {
    for (std::size_t first = 0; first < count; first += compact_block) {
        const float unit = compact_scale_value(scales[first / compact_block]) / 255.0F;
        const std::size_t length = count - first < compact_block ? count - first : compact_block;
        for (std::size_t i = 0; i < length; ++i) moment[first + i] = compact_square_value(codes[first + i], unit);
    }
}

}  // namespace
}  // namespace penstock::zero
