// The entries of the table for the updates, part of kernels_body.h (same rules): which loop a span takes.
#pragma once

#include "zero_infinity/kernels/kernels_update.h"
#include "zero_infinity/kernels/kernels_update_compact.h"

namespace penstock::zero {
namespace {

// The pairs of a codec and a type of gradients that a configuration can ask for, each compiled for every optimizer and
// instruction set. Others, which only a caller of Session can choose, take the loops one after the other.
template <typename Step>
EncodedUpdate update_encoded(const Step& step, const EncodedSpan& span) noexcept {
    const bool bf16 = span.gradient_type == PlaneType::bf16;
    const bool fp32 = span.gradient_type == PlaneType::fp32;
    if (span.form == EncodedForm::split && bf16) return update_form<SplitForm, Bf16Gradient>(step, span);
    if (span.form == EncodedForm::split && fp32) return update_form<SplitForm, Fp32Gradient>(step, span);
    if (span.form == EncodedForm::fp32 && fp32) return update_form<Fp32Form, Fp32Gradient>(step, span);
    if constexpr (Step::coded) {
        if (span.form == EncodedForm::compact && bf16) return update_compact<Bf16Gradient>(step, span);
        if (span.form == EncodedForm::compact && fp32) return update_compact<Fp32Gradient>(step, span);
    }
    return EncodedUpdate::unsupported;
}

template <typename Step, typename Factors>
constexpr UpdateKernel<Factors> kernel_of() noexcept {
    return {
        .decoded = [](const Factors& f, const UpdateSpan& span) noexcept { update_decoded(Step{f}, span); },
        .encoded = [](const Factors& f, const EncodedSpan& span) noexcept { return update_encoded(Step{f}, span); }};
}

// Of a step that interpolates with f.m_weight.
template <template <Nearer> class Step, typename Factors>
constexpr UpdateKernel<Factors> kernel_by_end() noexcept {
    return {.decoded =
                [](const Factors& f, const UpdateSpan& span) noexcept {
                    if (nearer_end(f.m_weight) == Nearer::from)
                        update_decoded(Step<Nearer::from>{f}, span);
                    else
                        update_decoded(Step<Nearer::to>{f}, span);
                },
            .encoded =
                [](const Factors& f, const EncodedSpan& span) noexcept {
                    return nearer_end(f.m_weight) == Nearer::from ? update_encoded(Step<Nearer::from>{f}, span)
                                                                  : update_encoded(Step<Nearer::to>{f}, span);
                }};
}

}  // namespace
}  // namespace penstock::zero
