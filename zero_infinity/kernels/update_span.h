// What an optimizer updates: a contiguous piece of one rank's shard.
#pragma once

#include "zero_infinity/kernels/plane.h"

#include <cstddef>
#include <cstdint>

namespace penstock::zero {

// As fp32 arrays. All have `count` elements and do not overlap.
struct UpdateSpan {
    float* master = nullptr;
    float* moments[2] = {nullptr, nullptr};  // as many as Optimizer::moments(); initial_moment() before the first step
    const float* gradient = nullptr;         // unscaled and clipped
    std::size_t count = 0;
};

// A moment of the codec `compact`: a code for each element, a scale for each compact_block of them.
struct CodedMoment {
    std::uint8_t* codes = nullptr;
    std::uint16_t* scales = nullptr;
};

// As its codec stores it: for optimizers that take the planes apart in registers, in the same pass over memory as the
// update. All arrays have `count` elements, do not overlap and are aligned for their type.
struct EncodedSpan {
    EncodedForm form = EncodedForm::none;
    std::byte* weights = nullptr;
    std::byte* master = nullptr;             // the codec's own plane; null when it has none
    float* moments[2] = {nullptr, nullptr};  // as many as Optimizer::moments(); null in compact
    CodedMoment coded[2];                    // the same in compact, each as its Optimizer::moment_kind() is coded
    const std::byte* gradient = nullptr;     // as it came: to be widened to fp32 and then multiplied by the scale
    PlaneType gradient_type = PlaneType::fp32;
    float gradient_scale = 1;
    std::size_t count = 0;
    std::size_t* first_bad =
        nullptr;  // compact: takes the first element of a non_finite update, which codes do not show
};

enum class EncodedUpdate : std::uint8_t {
    unsupported,  // nothing was touched: the caller decodes, updates and encodes
    finite,       // updated, and all new masters and moments are finite, and within the codec's limits
    non_finite,   // updated, and some are not
};

}  // namespace penstock::zero
