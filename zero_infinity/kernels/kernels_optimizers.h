// The steps of the optimizers for one element, part of kernels_body.h (same rules). optimizers.h is their definition.
//
// A step has the factors as its one member `f` and is called as step(master, first, second, gradient) with the moments
// that it has; the others are zero and forgotten. Codes for `compact` are made of a first moment of any sign and of a
// second that is a square, when `coded` says that they are.
#pragma once

#include "zero_infinity/kernels/optimizer_factors.h"

namespace penstock::zero {
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
[[gnu::always_inline]] inline float penalised(float gradient, float master, float weight_decay) noexcept {
    return weight_decay != 0.0F ? gradient + weight_decay * master : gradient;
}

template <Nearer end>
struct AdamWStep {
    static constexpr int moments = 2;
    static constexpr bool coded = true;
    AdamFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float& m, float& v, float g) const noexcept {
        m = lerp<end>(m, g, f.m_weight);
        v = v * f.v_decay + (f.v_weight * g) * g;
        const float denominator = __builtin_sqrtf(v) / f.v_correction + f.epsilon;
        master = master * f.decay + (f.step * m) / denominator;
    }
};

template <Nearer end>
struct AdamStep {
    static constexpr int moments = 2;
    static constexpr bool coded = true;
    AdamFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float& m, float& v, float gradient) const noexcept {
        const float g = penalised(gradient, master, f.decay);
        m = lerp<end>(m, g, f.m_weight);
        v = v * f.v_decay + (f.v_weight * g) * g;
        const float denominator = __builtin_sqrtf(v) / f.v_correction + f.epsilon;
        master = master + (f.step * m) / denominator;
    }
};

struct SgdStep {
    static constexpr int moments = 0;
    static constexpr bool coded = true;
    SgdFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float&, float&, float g) const noexcept {
        master = master + f.step * penalised(g, master, f.weight_decay);
    }
};

struct SgdMomentumStep {
    static constexpr int moments = 1;
    static constexpr bool coded = true;
    SgdFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float& b, float&, float gradient) const noexcept {
        const float g = penalised(gradient, master, f.weight_decay);
        b = f.first_step ? g : b * f.momentum + f.gradient_weight * g;
        master = master + f.step * (f.nesterov ? g + f.momentum * b : b);
    }
};

struct LionStep {
    static constexpr int moments = 1;
    static constexpr bool coded = true;
    LionFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float& m, float&, float g) const noexcept {
        const float c = m * f.sign_m_weight + g * f.sign_g_weight;
        const float sign = (c > 0.0F ? 1.0F : 0.0F) - (c < 0.0F ? 1.0F : 0.0F);
        master = master * f.decay + f.step * sign;
        m = m * f.m_decay + f.m_weight * g;
    }
};

struct AdagradStep {
    static constexpr int moments = 1;
    static constexpr bool coded = false;  // a growing sum
    AdagradFactors f;
    [[gnu::always_inline]] inline void operator()(float& master, float& v, float&, float gradient) const noexcept {
        const float g = penalised(gradient, master, f.weight_decay);
        v = v + g * g;
        master = master + (f.step * g) / (__builtin_sqrtf(v) + f.epsilon);
    }
};

}  // namespace
}  // namespace penstock::zero
