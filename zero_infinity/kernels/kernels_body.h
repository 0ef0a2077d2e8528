// The loops of kernels.h, included by exactly one .cpp per instruction set and by nothing else.
//
// Everything here has internal linkage and nothing of the standard library is called: an inline function compiled with
// AVX-512 flags must not become the copy that the linker picks for a file without them.
#pragma once

#include "zero_infinity/kernels/float16.h"
#include "zero_infinity/kernels/kernels.h"
#include "zero_infinity/kernels/kernels_compact.h"
#include "zero_infinity/kernels/kernels_entries.h"

namespace penstock::zero {
namespace {

void split(const float* __restrict value, std::uint16_t* __restrict hi, std::uint16_t* __restrict lo,
           std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        const auto bits = __builtin_bit_cast(std::uint32_t, value[i]);
        hi[i] = static_cast<std::uint16_t>((bits + 0x8000U) >> 16);
        lo[i] = static_cast<std::uint16_t>(bits);
    }
}

void join(const std::uint16_t* __restrict hi, const std::uint16_t* __restrict lo, float* __restrict value,
          std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t borrow = (lo[i] & 0x8000U) << 1;  // rounding carried into hi: take it back
        const std::uint32_t bits = ((static_cast<std::uint32_t>(hi[i]) << 16) - borrow) | lo[i];
        value[i] = __builtin_bit_cast(float, bits);
    }
}

void widen_bf16(const std::uint16_t* __restrict from, float* __restrict to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = bf16_to_fp32(from[i]);
}

void narrow_bf16(const float* __restrict from, std::uint16_t* __restrict to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = fp32_to_bf16(from[i]);
}

void widen_fp16(const std::uint16_t* __restrict from, float* __restrict to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = fp16_to_fp32(from[i]);
}

void narrow_fp16(const float* __restrict from, std::uint16_t* __restrict to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] = fp32_to_fp16(from[i]);
}

void scale(float* __restrict value, float factor, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) value[i] *= factor;
}

void add(const float* __restrict from, float* __restrict to, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) to[i] += from[i];
}

bool all_within(const float* __restrict value, float limit, std::size_t count) noexcept {
    std::uint32_t bad = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const float magnitude = value[i] < 0 ? -value[i] : value[i];
        bad |= magnitude <= limit ? 0U : 1U;
    }
    return bad == 0;
}

void add_squares(const float* __restrict value, double* __restrict lanes, std::size_t count) noexcept {
    double sums[square_lanes];
    for (std::size_t lane = 0; lane < square_lanes; ++lane) sums[lane] = lanes[lane];
    std::size_t i = 0;
    for (; i + square_lanes <= count; i += square_lanes) {
        for (std::size_t lane = 0; lane < square_lanes; ++lane) {
            const double wide = value[i + lane];
            sums[lane] += wide * wide;
        }
    }
    for (std::size_t lane = 0; i < count; ++i, ++lane) {
        const double wide = value[i];
        sums[lane] += wide * wide;
    }
    for (std::size_t lane = 0; lane < square_lanes; ++lane) lanes[lane] = sums[lane];
}

constexpr Kernels table(const char* name) noexcept {
    return {.name = name,
            .split = split,
            .join = join,
            .widen_bf16 = widen_bf16,
            .narrow_bf16 = narrow_bf16,
            .widen_fp16 = widen_fp16,
            .narrow_fp16 = narrow_fp16,
            .scale = scale,
            .add = add,
            .all_within = all_within,
            .add_squares = add_squares,
            .split_compact = split_compact,
            .join_compact = join_compact,
            .encode_signed = encode_signed,
            .decode_signed = decode_signed,
            .encode_squares = encode_squares,
            .decode_squares = decode_squares,
            .adamw = kernel_by_end<AdamWStep, AdamFactors>(),
            .adam = kernel_by_end<AdamStep, AdamFactors>(),
            .sgd = kernel_of<SgdStep, SgdFactors>(),
            .sgd_momentum = kernel_of<SgdMomentumStep, SgdFactors>(),
            .lion = kernel_of<LionStep, LionFactors>(),
            .adagrad = kernel_of<AdagradStep, AdagradFactors>()};
}

}  // namespace
}  // namespace penstock::zero
