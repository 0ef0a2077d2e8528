// Optimizers on spans of fp32: what a user implements to bring their own.
#pragma once

#include "zero_infinity/encoded_span.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace penstock {

// One contiguous piece of one rank's shard, decoded. All arrays have `count` elements and do not overlap.
struct UpdateSpan {
    float* master = nullptr;
    float* moments[2] = {nullptr, nullptr};  // as many as Optimizer::moments(); zero before the first step
    const float* gradient = nullptr;         // unscaled and clipped
    std::size_t count = 0;
};

// What the schedule says about this step; the same for every span of it.
struct StepValues {
    std::uint64_t step = 1;  // counts from 1
    double learning_rate = 0;
};

// Stateless between calls: all state is in the spans. update() is called by several threads at once on different
// spans, must be elementwise (so that any cut into spans gives the same bits), must not allocate, and must not fuse
// multiply-add.
class Optimizer {
   public:
    virtual ~Optimizer() = default;
    virtual std::string name() const = 0;
    virtual std::uint32_t moments() const noexcept = 0;  // 0, 1 or 2
    virtual void update(const UpdateSpan& span, const StepValues& values) const noexcept = 0;

    // What lossy codecs are to know of a moment.
    virtual MomentKind moment_kind(std::uint32_t) const noexcept { return MomentKind::any_sign; }

    // Optional: the same on encoded elements, in one pass over memory, with the bits of decode, widen, scale, update()
    // and encode one after the other. Never called with EncodedForm::none.
    virtual EncodedUpdate update_encoded(const EncodedSpan&, const StepValues&) const noexcept {
        return EncodedUpdate::unsupported;
    }
};

struct AdamWOptions {
    double beta1 = 0.9;
    double beta2 = 0.999;
    double epsilon = 1e-8;
    double weight_decay = 0.01;
};

// AdamW, Loshchilov and Hutter 2019, Algorithm 2, in the order of operations of torch.optim.AdamW (single tensor).
// The factors of a step are computed in double and then rounded to fp32 once (pow and sqrt are the C library's):
//   decay = 1 - lr*wd,  w1 = 1 - b1,  b2,  w2 = 1 - b2,  c2 = sqrt(1 - pow(b2, t)),  eps,  s = -(lr / (1 - pow(b1, t)))
// and each element is updated in fp32, every operation rounded to nearest by itself, in the order of the parentheses:
//   m = m + (w1 * (g - m))
//   v = (v * b2) + ((w2 * g) * g)
//   p = (p * decay) + ((s * m) / ((sqrt(v) / c2) + eps))
// Weight decay applies to every element. AVX-512, AVX2 and baseline twins are bit-identical and chosen at run time.
// torch 2.11 on a CPU, measured: the same but for last bits, because on processors with fused multiply-add its kernels
// fuse the two sums of m and v, and its sqrt is not correctly rounded (17 % of values differ from std::sqrt by a bit).
// Throws Error (usage) naming the option unless 0 <= beta < 1, weight_decay >= 0 and epsilon is positive as fp32:
// padding has g = v = 0, and 0/0 is not a number.
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

}  // namespace penstock
