// The loops of the optimizers, a part of kernels_body.h and under its rules: included by it and by nothing else.
// optimizers.h is their definition.
#pragma once

#include "zero_infinity/optimizer_factors.h"

namespace penstock {
namespace {

// torch.lerp goes from the nearer end. A template parameter, so that no loop has a condition.
enum class Nearer { from, to };
inline Nearer nearer_end(float weight) noexcept {
    return weight < 0.5F ? Nearer::from : Nearer::to;
}
template <Nearer end>
[[gnu::always_inline]] inline float lerp(float from, float to, float weight) noexcept {
    return end == Nearer::from ? from + weight * (to - from) : to - (to - from) * (1.0F - weight);
}

// Conditions on factors are the same for the whole loop: the compiler takes them out of it.
inline float penalised(float gradient, float master, float weight_decay) noexcept {
    return weight_decay != 0.0F ? gradient + weight_decay * master : gradient;
}

template <Nearer end>
void adam_from(const AdamFactors& factors, float* __restrict master, float* __restrict m, float* __restrict v,
               const float* __restrict gradient, std::size_t count) noexcept {
    const AdamFactors f = factors;  // a copy that the stores below cannot alias
    for (std::size_t i = 0; i < count; ++i) {
        const float g = penalised(gradient[i], master[i], f.weight_decay);
        const float new_m = lerp<end>(m[i], g, f.m_weight);
        const float new_v = v[i] * f.v_decay + (f.v_weight * g) * g;
        const float denominator = __builtin_sqrtf(new_v) / f.v_correction + f.epsilon;
        master[i] = master[i] + (f.step * new_m) / denominator;
        m[i] = new_m;
        v[i] = new_v;
    }
}

void adam(const AdamFactors& factors, float* __restrict master, float* __restrict m, float* __restrict v,
          const float* __restrict gradient, std::size_t count) noexcept {
    if (nearer_end(factors.m_weight) == Nearer::from)
        adam_from<Nearer::from>(factors, master, m, v, gradient, count);
    else
        adam_from<Nearer::to>(factors, master, m, v, gradient, count);
}

void sgd(const SgdFactors& factors, float* __restrict master, const float* __restrict gradient,
         std::size_t count) noexcept {
    const SgdFactors f = factors;
    for (std::size_t i = 0; i < count; ++i)
        master[i] = master[i] + f.step * penalised(gradient[i], master[i], f.weight_decay);
}

void sgd_momentum(const SgdFactors& factors, float* __restrict master, float* __restrict buffer,
                  const float* __restrict gradient, std::size_t count) noexcept {
    const SgdFactors f = factors;
    for (std::size_t i = 0; i < count; ++i) {
        const float g = penalised(gradient[i], master[i], f.weight_decay);
        const float b = f.first_step ? g : buffer[i] * f.momentum + f.gradient_weight * g;
        master[i] = master[i] + f.step * (f.nesterov ? g + f.momentum * b : b);
        buffer[i] = b;
    }
}

void lion(const LionFactors& factors, float* __restrict master, float* __restrict m, const float* __restrict gradient,
          std::size_t count) noexcept {
    const LionFactors f = factors;
    for (std::size_t i = 0; i < count; ++i) {
        const float g = gradient[i];
        const float c = m[i] * f.sign_m_weight + g * f.sign_g_weight;
        const float sign = (c > 0.0F ? 1.0F : 0.0F) - (c < 0.0F ? 1.0F : 0.0F);
        master[i] = master[i] * f.decay + f.step * sign;
        m[i] = m[i] * f.m_decay + f.m_weight * g;
    }
}

void adagrad(const AdagradFactors& factors, float* __restrict master, float* __restrict v,
             const float* __restrict gradient, std::size_t count) noexcept {
    const AdagradFactors f = factors;
    for (std::size_t i = 0; i < count; ++i) {
        const float g = penalised(gradient[i], master[i], f.weight_decay);
        const float new_v = v[i] + g * g;
        master[i] = master[i] + (f.step * g) / (__builtin_sqrtf(new_v) + f.epsilon);
        v[i] = new_v;
    }
}

}  // namespace
}  // namespace penstock
