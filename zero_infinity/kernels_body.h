// The loops of kernels.h, included by exactly one .cpp per instruction set and by nothing else.
//
// Everything here has internal linkage and nothing of the standard library is called: an inline function compiled with
// AVX-512 flags must not become the copy that the linker picks for a file without them.
#pragma once

#include "zero_infinity/float16.h"
#include "zero_infinity/kernels.h"
#include "zero_infinity/kernels_compact.h"
#include "zero_infinity/kernels_encoded.h"
#include "zero_infinity/kernels_optimizers_body.h"

namespace penstock {
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

template <Nearer end>
struct AdamWStep {
    AdamWFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float& m, float& v, float g) const noexcept {
        m = lerp<end>(m, g, f.m_weight);
        v = v * f.v_decay + (f.v_weight * g) * g;
        const float denominator = __builtin_sqrtf(v) / f.v_correction + f.epsilon;
        master = master * f.decay + (f.step * m) / denominator;
    }
};

template <Nearer end>
void adamw_from(const AdamWFactors& factors, float* __restrict master, float* __restrict m, float* __restrict v,
                const float* __restrict gradient, std::size_t count) noexcept {
    const AdamWStep<end> step{factors};  // a copy that the stores below cannot alias
    for (std::size_t i = 0; i < count; ++i) {
        float p = master[i];
        float new_m = m[i];
        float new_v = v[i];
        step(p, new_m, new_v, gradient[i]);
        master[i] = p;
        m[i] = new_m;
        v[i] = new_v;
    }
}

void adamw(const AdamWFactors& factors, float* __restrict master, float* __restrict m, float* __restrict v,
           const float* __restrict gradient, std::size_t count) noexcept {
    if (nearer_end(factors.m_weight) == Nearer::from)
        adamw_from<Nearer::from>(factors, master, m, v, gradient, count);
    else
        adamw_from<Nearer::to>(factors, master, m, v, gradient, count);
}

EncodedUpdate adamw_encoded(const AdamWFactors& factors, const EncodedSpan& span) noexcept {
    return nearer_end(factors.m_weight) == Nearer::from ? update_encoded(AdamWStep<Nearer::from>{factors}, span)
                                                        : update_encoded(AdamWStep<Nearer::to>{factors}, span);
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
            .adamw = adamw,
            .adamw_encoded = adamw_encoded,
            .split_compact = split_compact,
            .join_compact = join_compact,
            .encode_signed = encode_signed,
            .decode_signed = decode_signed,
            .encode_squares = encode_squares,
            .decode_squares = decode_squares,
            .adam = adam,
            .sgd = sgd,
            .sgd_momentum = sgd_momentum,
            .lion = lion,
            .adagrad = adagrad};
}

}  // namespace
}  // namespace penstock
