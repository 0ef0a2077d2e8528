// A contiguous piece of a tile as its codec stores it: for optimizers that take the planes apart in registers, in the
// same pass over memory as the update.
#pragma once

#include "zero_infinity/codec.h"

#include <cstddef>

namespace penstock {

// All arrays have `count` elements, do not overlap and are aligned for their type. For the forms of codecs whose
// moments are planes of fp32.
struct EncodedSpan {
    EncodedForm form = EncodedForm::none;
    std::byte* weights = nullptr;
    std::byte* master = nullptr;             // the codec's own plane; null when it has none
    float* moments[2] = {nullptr, nullptr};  // as many as Optimizer::moments()
    const std::byte* gradient = nullptr;     // as it came: to be widened to fp32 and then multiplied by the scale
    PlaneType gradient_type = PlaneType::fp32;
    float gradient_scale = 1;
    std::size_t count = 0;
};

enum class EncodedUpdate : std::uint8_t {
    unsupported,  // nothing was touched: the caller decodes, updates and encodes
    finite,       // updated, and all new masters and moments are finite
    non_finite,   // updated, and some are not
};

}  // namespace penstock
