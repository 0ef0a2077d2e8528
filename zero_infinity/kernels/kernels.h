// The inner loops over flat arrays, once per instruction set. Internal to the core: use codec.h, gradient.h,
// optimizers.h.
//
// kernels_body.h holds the loops as plain C++; kernels_avx512.cpp, kernels_avx2.cpp and kernels_baseline.cpp compile
// it with flags of their own (CMakeLists.txt), and the processor's twin is chosen at run time. All twins give the
// same bits: each operation is rounded by itself (-ffp-contract=off) and the order of sums is written down.
// Neither ifunc nor target_clones: their resolvers run before the sanitizers are set up.
#pragma once

#include "zero_infinity/kernels/optimizer_factors.h"
#include "zero_infinity/kernels/update_span.h"

#include <cstddef>
#include <cstdint>

namespace penstock::zero {

// The update of one optimizer, given the factors of its step.
template <typename Factors>
struct UpdateKernel {
    void (*decoded)(const Factors& factors, const UpdateSpan& span) noexcept;
    // The same on encoded elements, in one pass, for split and compact (Adagrad's not) with gradients of bf16 and fp32,
    // and for fp32 with fp32.
    EncodedUpdate (*encoded)(const Factors& factors, const EncodedSpan& span) noexcept;
};

inline constexpr std::size_t square_lanes = 16;

// Arrays of `count` elements that do not overlap, aligned for their element type. No function keeps state.
struct Kernels {
    const char* name;  // "avx512", "avx2", "baseline"

    // The halves of the split master, see codec.h.
    void (*split)(const float* value, std::uint16_t* hi, std::uint16_t* lo, std::size_t count) noexcept;
    void (*join)(const std::uint16_t* hi, const std::uint16_t* lo, float* value, std::size_t count) noexcept;

    // float16.h, elementwise.
    void (*widen_bf16)(const std::uint16_t* from, float* to, std::size_t count) noexcept;
    void (*narrow_bf16)(const float* from, std::uint16_t* to, std::size_t count) noexcept;
    void (*widen_fp16)(const std::uint16_t* from, float* to, std::size_t count) noexcept;
    void (*narrow_fp16)(const float* from, std::uint16_t* to, std::size_t count) noexcept;

    void (*scale)(float* value, float factor, std::size_t count) noexcept;            // value[i] *= factor
    void (*add)(const float* from, float* to, std::size_t count) noexcept;            // to[i] += from[i]
    bool (*all_within)(const float* value, float limit, std::size_t count) noexcept;  // |value[i]| <= limit, no NaN
    // lanes[i % square_lanes] += double(value[i])^2, in the order of i.
    void (*add_squares)(const float* value, double* lanes, std::size_t count) noexcept;

    // compact.h, elementwise; one scale for each compact_block elements from the first on, and one for what is left.
    void (*split_compact)(const float* value, std::uint16_t* weights, std::uint8_t* residuals,
                          std::size_t count) noexcept;
    void (*join_compact)(const std::uint16_t* weights, const std::uint8_t* residuals, float* value,
                         std::size_t count) noexcept;
    void (*encode_signed)(const float* moment, std::uint8_t* codes, std::uint16_t* scales, std::size_t count) noexcept;
    void (*decode_signed)(const std::uint8_t* codes, const std::uint16_t* scales, float* moment,
                          std::size_t count) noexcept;
    void (*encode_squares)(const float* moment, std::uint8_t* codes, std::uint16_t* scales, std::size_t count) noexcept;
    void (*decode_squares)(const std::uint8_t* codes, const std::uint16_t* scales, float* moment,
                           std::size_t count) noexcept;

    // optimizers.h.
    UpdateKernel<AdamFactors> adamw;
    UpdateKernel<AdamFactors> adam;
    UpdateKernel<SgdFactors> sgd;
    UpdateKernel<SgdFactors> sgd_momentum;
    UpdateKernel<LionFactors> lion;
    UpdateKernel<AdagradFactors> adagrad;
};

// The fastest twin that this processor runs.
const Kernels& kernels() noexcept;

// All twins that this processor runs, fastest first, then null: for tests and benchmarks.
const Kernels* const* runnable_kernels() noexcept;

}  // namespace penstock::zero
