// The interface of an optimizer on spans of fp32: what a user implements to bring their own (an example of twenty lines
// is in tests/zero_infinity/optimizer/own_optimizer_test.cpp). Those that come with the library are in optimizers.h.
#pragma once

#include "zero_infinity/codec/codec.h"
#include "zero_infinity/kernels/update_span.h"

#include <cstdint>
#include <string>

namespace penstock::zero {

// What the schedule says about this step; the same for every span of it, but for the parameter group's own rate.
struct StepValues {
    std::uint64_t step = 1;  // counts from 1
    double learning_rate = 0;
};

// Stateless between calls: all state is in the spans. update() is called by several threads at once on different
// spans, must be elementwise (so that any cut into spans gives the same bits), must not allocate, and must not fuse
// multiply-add. Padding between parameters is updated too: with master and gradient 0 they must stay 0 and finite.
class Optimizer {
   public:
    virtual ~Optimizer() = default;
    virtual std::string name() const = 0;                // the store remembers it: another name cannot read the moments
    virtual std::string options() const { return {}; }   // in words: the same on all ranks, in each step
    virtual std::uint32_t moments() const noexcept = 0;  // 0, 1 or 2
    // What every element of a moment is before step 1. REQUIRES: moment < moments().
    virtual float initial_moment(std::uint32_t /*moment*/) const noexcept { return 0; }
    virtual void update(const UpdateSpan& span, const StepValues& values) const noexcept = 0;

    // What lossy codecs must know about a moment. A moment that the update divides by is `square` or `growing_sum`: as
    // `any_sign` it would be rounded to 0 beside larger neighbours, and the next quotient would explode. REQUIRES:
    // moment < moments().
    virtual MomentKind moment_kind(std::uint32_t moment) const noexcept = 0;

    // Optional: the same on encoded elements, in one pass over memory, with the bits of decode, widen, scale, update()
    // and encode one after the other. Never called with EncodedForm::none.
    virtual EncodedUpdate update_encoded(const EncodedSpan&, const StepValues&) const noexcept {
        return EncodedUpdate::unsupported;
    }
};

// It keeps a sum that never forgets: rounded by a lossy codec, it would stop growing.
inline bool never_forgets(const Optimizer& optimizer) noexcept {
    for (std::uint32_t moment = 0; moment < optimizer.moments(); ++moment)
        if (optimizer.moment_kind(moment) == MomentKind::growing_sum) return true;
    return false;
}

}  // namespace penstock::zero
