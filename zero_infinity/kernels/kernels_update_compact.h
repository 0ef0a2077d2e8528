// The update of elements encoded as `compact`, part of kernels_body.h (same rules): one pass over memory with the bits
// of kernels_compact.h's loops and the step one after the other.
//
// A strip of blocks is decoded and updated into arrays on the stack, with the largest of each block; scales are made
// for all blocks together; then it is encoded. Until then the planes are as they were, and a strip with a value that
// the codec refuses, or whose master rounds beyond the finite ones, takes the loops instead, as does a last block that
// is not whole. So what is encoded here is known to be ordinary, and needs no care for infinity, NaN and signs of
// squares. Its instructions, not memory, are what an update of compact costs: prefetching as in kernels_update.h makes
// it 1.05 times slower.
#pragma once

#include "zero_infinity/kernels/kernels_compact.h"
#include "zero_infinity/kernels/kernels_update.h"

namespace penstock::zero {
namespace {

template <typename Gradient>
struct CompactPlanes {
    std::uint16_t* weights;
    std::uint8_t* residuals;
    CodedMoment moments[2];
    const typename Gradient::Type* gradient;
    float gradient_scale;
};

// Where the number of moments is known and the first element is where a block begins.
template <typename Step, typename Gradient>
[[gnu::always_inline]] inline CompactPlanes<Gradient> planes_from(CompactPlanes<Gradient> planes,
                                                                  std::size_t first) noexcept {
    planes.weights += first;
    planes.residuals += first;
    planes.gradient += first;
    for (int moment = 0; moment < Step::moments; ++moment) {
        planes.moments[moment].codes += first;
        planes.moments[moment].scales += first / compact_block;
    }
    return planes;
}

// As many elements as the stack arrays of a strip hold.
constexpr std::size_t compact_strip = 512;
constexpr std::size_t compact_strip_blocks = compact_strip / compact_block;

struct CompactStrip {
    alignas(64) float master[compact_strip];
    alignas(64) float first[compact_strip];
    alignas(64) float second[compact_strip];  // of the loops; here its square root
};

// ---------------------------------------------------------------- any elements, by the loops

[[gnu::always_inline]] inline bool beyond(float value, float limit) noexcept {
    return !((value < 0 ? -value : value) <= limit);
}

// Returns the first element that the codec refuses, or `count`.
template <typename Step>
std::size_t first_refused(const CompactStrip& strip, std::size_t count) noexcept {
    for (std::size_t i = 0; i < count; ++i) {
        if (exceeds_finite(strip.master[i]) != 0) return i;
        if (Step::moments > 0 && beyond(strip.first[i], compact_largest_scale)) return i;
        if (Step::moments > 1 && beyond(strip.second[i], compact_largest_scale * compact_largest_scale)) return i;
    }
    return count;
}

// The same for at most compact_strip elements, which are updated whatever they are.
template <typename Step, typename Gradient>
[[gnu::noinline]] std::size_t update_by_loops(const Step& step, const CompactPlanes<Gradient>& planes,
                                              std::size_t count) noexcept {
    CompactStrip strip;
    float gradient[compact_strip];
    const auto& [first, second] = planes.moments;
    join_compact(planes.weights, planes.residuals, strip.master, count);
    if constexpr (Step::moments > 0) decode_signed(first.codes, first.scales, strip.first, count);
    if constexpr (Step::moments > 1) decode_squares(second.codes, second.scales, strip.second, count);
    for (std::size_t i = 0; i < count; ++i) gradient[i] = Gradient::widen(planes.gradient[i]) * planes.gradient_scale;
    update_arrays(step, strip.master, strip.first, strip.second, gradient, count);
    const std::size_t refused = first_refused<Step>(strip, count);
    split_compact(strip.master, planes.weights, planes.residuals, count);
    if constexpr (Step::moments > 0) encode_signed(strip.first, first.codes, first.scales, count);
    if constexpr (Step::moments > 1) encode_squares(strip.second, second.codes, second.scales, count);
    return refused;
}

// ---------------------------------------------------------------- whole blocks of ordinary values

[[gnu::always_inline]] inline std::uint32_t bits_of(float value) noexcept {
    return __builtin_bit_cast(std::uint32_t, value);
}
[[gnu::always_inline]] inline std::uint32_t magnitude_bits(float value) noexcept {
    return bits_of(value) & 0x7fffffffU;
}
[[gnu::always_inline]] inline std::uint32_t larger(std::uint32_t a, std::uint32_t b) noexcept {
    return a > b ? a : b;
}

// As compact_join: a residual with its sign is what it adds to the weight.
[[gnu::always_inline]] inline float compact_sum(std::uint16_t weight, std::uint8_t residual) noexcept {
    const auto lower = static_cast<std::uint32_t>(static_cast<std::int8_t>(residual));
    return __builtin_bit_cast(float, ((static_cast<std::uint32_t>(weight) << 8) + lower) << 8);
}

// As compact_master for |value| below 0x1.ffff01p127, which has no larger neighbour to be kept from.
constexpr std::uint32_t least_unusual_master = 0x7f7fff80U;
[[gnu::always_inline]] inline std::uint32_t usual_master(float value) noexcept {
    const std::uint32_t bits = bits_of(value);
    return (bits + 0x7fU + ((bits >> 8) & 1U)) >> 8;
}

// As compact_signed_code for values that are numbers: rounding is the same on both sides of zero, and the last byte of
// 1.5 x 2^23 + c is c as a signed one.
[[gnu::always_inline]] inline std::uint8_t usual_signed_code(float value, float inverse) noexcept {
    const float signed_x = value * inverse;
    const float x = compact_at_most_one(__builtin_bit_cast(float, magnitude_bits(signed_x)));
    const float y = __builtin_bit_cast(float, bits_of(x) | (bits_of(signed_x) & 0x80000000U));
    return static_cast<std::uint8_t>(bits_of(254.0F * y / (1.0F + x) + 0x1.8p23F));
}

// As compact_root_code for roots that are numbers: floats above zero are ordered as integers.
[[gnu::always_inline]] inline std::uint8_t usual_root_code(float root, float inverse) noexcept {
    const auto x = __builtin_bit_cast(std::int32_t, 255.0F * compact_at_most_one(root * inverse));
    const std::int32_t least = __builtin_bit_cast(std::int32_t, root) > 0 ? 0x3f800000 : 0;
    return static_cast<std::uint8_t>(bits_of(__builtin_bit_cast(float, x > least ? x : least) + 0x1.8p23F));
}

// As compact_scale_value and compact_inverse, without conditions.
[[gnu::always_inline]] inline std::uint32_t all_bits_if(std::uint32_t code) noexcept {
    return code == 0 ? 0U : 0xffffffffU;
}
[[gnu::always_inline]] inline float scale_value(std::uint32_t code) noexcept {
    return __builtin_bit_cast(float, ((code + (79U << 10)) << 13) & all_bits_if(code));
}
[[gnu::always_inline]] inline float scale_inverse(std::uint32_t code) noexcept {
    const float inverse = 1.0F / __builtin_bit_cast(float, (code + (79U << 10)) << 13);
    return __builtin_bit_cast(float, bits_of(inverse) & all_bits_if(code));
}

// For each block: first what decoding takes, the scale and for squares a 255th of it; then the inverse of the new one.
struct BlockScales {
    alignas(64) float first[compact_strip_blocks];
    alignas(64) float second[compact_strip_blocks];
};
// The largest of each block, by their bits: |master|, |first|, and second with its sign, so that negative ones are
// huge.
struct BlockLargest {
    alignas(64) std::uint32_t master[compact_strip_blocks];
    alignas(64) std::uint32_t first[compact_strip_blocks];
    alignas(64) std::uint32_t second[compact_strip_blocks];
};

// Decodes and updates one block into arrays. `first_scale` and `second_unit` are of the block.
template <typename Gradient, typename Step>
[[gnu::always_inline]] inline void update_into(const Step& step, const std::uint16_t* __restrict weights,
                                               const std::uint8_t* __restrict residuals,
                                               const std::uint8_t* __restrict first, float first_scale,
                                               const std::uint8_t* __restrict second, float second_unit,
                                               const typename Gradient::Type* __restrict gradient, float scale,
                                               float* __restrict to_master, float* __restrict to_first,
                                               float* __restrict to_second, std::uint32_t (&largest)[3]) noexcept {
    std::uint32_t largest_p = 0;
    std::uint32_t largest_a = 0;
    std::uint32_t largest_b = 0;
    for (std::size_t i = 0; i < compact_block; ++i) {
        float p = compact_sum(weights[i], residuals[i]);
        float a = 0;
        float b = 0;
        if constexpr (Step::moments > 0) a = compact_signed_value(first[i], first_scale);
        if constexpr (Step::moments > 1) b = compact_square_value(second[i], second_unit);
        step(p, a, b, Gradient::widen(gradient[i]) * scale);
        to_master[i] = p;
        largest_p = larger(largest_p, magnitude_bits(p));
        if constexpr (Step::moments > 0) {
            to_first[i] = a;
            largest_a = larger(largest_a, magnitude_bits(a));
        }
        if constexpr (Step::moments > 1) {
            to_second[i] = __builtin_sqrtf(b);  // the step took it already
            largest_b = larger(largest_b, bits_of(b));
        }
    }
    largest[0] = largest_p;
    largest[1] = largest_a;
    largest[2] = largest_b;
}

template <typename Step>
[[gnu::always_inline]] inline void scales_to_decode(const CodedMoment* moments, std::size_t blocks,
                                                    BlockScales& scales) noexcept {
    if constexpr (Step::moments > 0)
        for (std::size_t i = 0; i < blocks; ++i) scales.first[i] = scale_value(moments[0].scales[i]);
    if constexpr (Step::moments > 1)
        for (std::size_t i = 0; i < blocks; ++i) scales.second[i] = scale_value(moments[1].scales[i]) / 255.0F;
}

template <typename Step>
[[gnu::always_inline]] inline bool all_usual(const BlockLargest& largest, std::size_t blocks) noexcept {
    std::uint32_t unusual = 0;
    for (std::size_t i = 0; i < blocks; ++i) {
        unusual |= largest.master[i] >= least_unusual_master ? 1U : 0U;
        if constexpr (Step::moments > 0) unusual |= largest.first[i] > bits_of(compact_largest_scale) ? 1U : 0U;
        if constexpr (Step::moments > 1)
            unusual |= largest.second[i] > bits_of(compact_largest_scale * compact_largest_scale) ? 1U : 0U;
    }
    return unusual == 0;
}

// The root of the largest square is the largest root: roots are rounded in the order of what they are of.
template <typename Step>
[[gnu::always_inline]] inline void scales_to_encode(const BlockLargest& largest, std::size_t blocks,
                                                    const CodedMoment* moments, BlockScales& inverses) noexcept {
    std::uint32_t code[compact_strip_blocks];
    if constexpr (Step::moments > 0) {
        for (std::size_t i = 0; i < blocks; ++i) code[i] = compact_scale(largest.first[i]);
        for (std::size_t i = 0; i < blocks; ++i) inverses.first[i] = scale_inverse(code[i]);
        for (std::size_t i = 0; i < blocks; ++i) moments[0].scales[i] = static_cast<std::uint16_t>(code[i]);
    }
    if constexpr (Step::moments > 1) {
        for (std::size_t i = 0; i < blocks; ++i)
            code[i] = compact_scale(bits_of(__builtin_sqrtf(__builtin_bit_cast(float, largest.second[i]))));
        for (std::size_t i = 0; i < blocks; ++i) inverses.second[i] = scale_inverse(code[i]);
        for (std::size_t i = 0; i < blocks; ++i) moments[1].scales[i] = static_cast<std::uint16_t>(code[i]);
    }
}

[[gnu::always_inline]] inline void encode_usual_masters(const float* __restrict master,
                                                        std::uint16_t* __restrict weights,
                                                        std::uint8_t* __restrict residuals) noexcept {
    for (std::size_t i = 0; i < compact_block; ++i) {
        const std::uint32_t rounded = usual_master(master[i]);
        weights[i] = compact_weight(rounded);
        residuals[i] = compact_residual(rounded);
    }
}
[[gnu::always_inline]] inline void encode_usual_moments(const float* __restrict moment, float inverse,
                                                        std::uint8_t* __restrict codes) noexcept {
    for (std::size_t i = 0; i < compact_block; ++i) codes[i] = usual_signed_code(moment[i], inverse);
}
[[gnu::always_inline]] inline void encode_roots(const float* __restrict roots, float inverse,
                                                std::uint8_t* __restrict codes) noexcept {
    for (std::size_t i = 0; i < compact_block; ++i) codes[i] = usual_root_code(roots[i], inverse);
}

// Returns false and leaves the planes alone if a value is not usual.
template <typename Step, typename Gradient>
[[gnu::always_inline]] inline bool update_usual(const Step& step, const CompactPlanes<Gradient>& planes,
                                                std::size_t blocks) noexcept {
    CompactStrip strip;
    BlockScales scales;
    BlockLargest largest;
    const auto& [first, second] = planes.moments;
    scales_to_decode<Step>(planes.moments, blocks, scales);
    for (std::size_t block = 0; block < blocks; ++block) {
        const std::size_t at = block * compact_block;
        std::uint32_t of_block[3];
        update_into<Gradient>(step, planes.weights + at, planes.residuals + at,
                              Step::moments > 0 ? first.codes + at : nullptr, scales.first[block],
                              Step::moments > 1 ? second.codes + at : nullptr, scales.second[block],
                              planes.gradient + at, planes.gradient_scale, strip.master + at, strip.first + at,
                              strip.second + at, of_block);
        largest.master[block] = of_block[0];
        largest.first[block] = of_block[1];
        largest.second[block] = of_block[2];
    }
    if (!all_usual<Step>(largest, blocks)) return false;
    scales_to_encode<Step>(largest, blocks, planes.moments, scales);
    for (std::size_t block = 0; block < blocks; ++block) {
        const std::size_t at = block * compact_block;
        encode_usual_masters(strip.master + at, planes.weights + at, planes.residuals + at);
        if constexpr (Step::moments > 0) encode_usual_moments(strip.first + at, scales.first[block], first.codes + at);
        if constexpr (Step::moments > 1) encode_roots(strip.second + at, scales.second[block], second.codes + at);
    }
    return true;
}

// ---------------------------------------------------------------- any count

template <typename Gradient, typename Step>
EncodedUpdate update_compact(const Step& given, const EncodedSpan& span) noexcept {
    const Step step = given;  // a copy that stores cannot alias
    const CompactPlanes<Gradient> whole{
        .weights = reinterpret_cast<std::uint16_t*>(span.weights),
        .residuals = reinterpret_cast<std::uint8_t*>(span.master),
        .moments = {span.coded[0], span.coded[1]},
        .gradient = reinterpret_cast<const typename Gradient::Type*>(span.gradient),
        .gradient_scale = span.gradient_scale,
    };
    bool finite = true;
    for (std::size_t done = 0; done < span.count;) {
        const std::size_t left = span.count - done;
        const std::size_t blocks = left < compact_strip ? left / compact_block : compact_strip_blocks;
        const CompactPlanes<Gradient> planes = planes_from<Step>(whole, done);
        const std::size_t count = blocks > 0 ? blocks * compact_block : left;
        if (blocks == 0 || !update_usual(step, planes, blocks)) {
            const std::size_t refused = update_by_loops(step, planes, count);
            if (finite && refused < count) {
                finite = false;
                *span.first_bad = done + refused;
            }
        }
        done += count;
    }
    return finite ? EncodedUpdate::finite : EncodedUpdate::non_finite;
}

}  // namespace
}  // namespace penstock::zero
