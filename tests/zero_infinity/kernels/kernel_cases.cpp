#include "tests/zero_infinity/kernels/kernel_cases.h"

namespace penstock::test {
namespace {

template <typename Factors>
KernelCase kernel_case(std::string name, int moments, zero::UpdateKernel<Factors> zero::Kernels::*kernel,
                       const Factors& factors) {
    return {std::move(name), moments,
            [=](const zero::Kernels& twin, const zero::UpdateSpan& span) { (twin.*kernel).decoded(factors, span); },
            [=](const zero::Kernels& twin, const zero::EncodedSpan& span) {
                return (twin.*kernel).encoded(factors, span);
            }};
}

}  // namespace

std::vector<KernelCase> kernel_cases() {
    std::vector<KernelCase> all;
    for (const float decay : {0.0F, 0.1F}) {
        for (const float m_weight : {0.1F, 0.6F}) {
            const zero::AdamFactors factors{1.0F - decay, m_weight, 0.99F, 0.01F, 0.5F, 1e-8F, -0.003F};
            all.push_back(kernel_case("adamw", 2, &zero::Kernels::adamw, factors));
            zero::AdamFactors with_penalty = factors;
            with_penalty.decay = decay;
            all.push_back(kernel_case("adam", 2, &zero::Kernels::adam, with_penalty));
        }
        all.push_back(kernel_case("sgd", 0, &zero::Kernels::sgd, {.weight_decay = decay, .step = -0.1F}));
        for (const bool first : {true, false})
            for (const bool nesterov : {true, false})
                all.push_back(kernel_case("sgd_momentum", 1, &zero::Kernels::sgd_momentum,
                                          {decay, 0.9F, 0.7F, -0.1F, first, nesterov}));
        all.push_back(kernel_case("lion", 1, &zero::Kernels::lion, {1.0F - decay, 0.9F, 0.1F, 0.99F, 0.01F, -0.001F}));
        all.push_back(kernel_case("adagrad", 1, &zero::Kernels::adagrad, {decay, 1e-10F, -0.01F}));
    }
    return all;
}

}  // namespace penstock::test
