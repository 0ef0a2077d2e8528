#include "tests/oracle/reference_optimizer.h"

#include <cmath>

// Every operation in fp32, by itself; factors are computed in double and rounded once.
namespace penstock::testing {
namespace {

using Kind = ReferenceOptimizer::Kind;

// torch.optim.Adam and AdamW: the first adds its decay to the gradient, the second takes it from the weight.
void adam(const ReferenceOptimizer& of, ReferenceState& state, std::span<const float> gradient, double t, double rate) {
    const bool decoupled = of.kind == Kind::adamw;
    const auto decay = static_cast<float>(1 - rate * of.weight_decay);
    const auto penalty = static_cast<float>(of.weight_decay);
    const auto weight = static_cast<float>(1 - of.beta1);
    const auto beta2 = static_cast<float>(of.beta2);
    const auto weight2 = static_cast<float>(1 - of.beta2);
    const auto root_correction2 = static_cast<float>(std::sqrt(1 - std::pow(of.beta2, t)));
    const auto step_size = static_cast<float>(-(rate / (1 - std::pow(of.beta1, t))));
    const auto epsilon = static_cast<float>(of.epsilon);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        float& p = state.master[i];
        float& m = state.m[i];
        float& v = state.v[i];
        float g = gradient[i];
        if (!decoupled && of.weight_decay != 0) g = g + penalty * p;
        const float way = g - m;
        m = weight < 0.5F ? m + weight * way : g - way * (1.0F - weight);  // torch.lerp
        const float kept = v * beta2;
        const float weighted = weight2 * g;
        v = kept + weighted * g;
        const float denominator = std::sqrt(v) / root_correction2 + epsilon;
        if (decoupled) p = p * decay;
        const float moved = step_size * m;
        p = p + moved / denominator;
    }
}

// torch.optim.SGD.
void sgd(const ReferenceOptimizer& of, ReferenceState& state, std::span<const float> gradient, double t, double rate) {
    const auto penalty = static_cast<float>(of.weight_decay);
    const auto momentum = static_cast<float>(of.momentum);
    const auto damped = static_cast<float>(1 - of.dampening);
    const auto step_size = static_cast<float>(-rate);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        float d = gradient[i];
        if (of.weight_decay != 0) d = d + penalty * state.master[i];
        if (of.momentum != 0) {
            float& buffer = state.m[i];
            if (t == 1) {
                buffer = d;
            } else {
                const float kept = buffer * momentum;
                buffer = kept + damped * d;
            }
            d = of.nesterov ? d + momentum * buffer : buffer;
        }
        state.master[i] = state.master[i] + step_size * d;
    }
}

// Lion as its authors' code: the sign of an interpolation, then the moment.
void lion(const ReferenceOptimizer& of, ReferenceState& state, std::span<const float> gradient, double rate) {
    const auto decay = static_cast<float>(1 - rate * of.weight_decay);
    const auto beta1 = static_cast<float>(of.beta1);
    const auto weight1 = static_cast<float>(1 - of.beta1);
    const auto beta2 = static_cast<float>(of.beta2);
    const auto weight2 = static_cast<float>(1 - of.beta2);
    const auto step_size = static_cast<float>(-rate);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        const float g = gradient[i];
        const float kept = state.m[i] * beta1;
        const float direction = kept + g * weight1;
        state.master[i] = state.master[i] * decay;
        if (direction > 0) state.master[i] += step_size;
        if (direction < 0) state.master[i] -= step_size;
        const float old = state.m[i] * beta2;
        state.m[i] = old + weight2 * g;
    }
}

// torch.optim.Adagrad; its sum is the one moment, kept where Adam has its first.
void adagrad(const ReferenceOptimizer& of, ReferenceState& state, std::span<const float> gradient, double t,
             double rate) {
    const auto penalty = static_cast<float>(of.weight_decay);
    const auto step_size = static_cast<float>(-(rate / (1 + (t - 1) * of.lr_decay)));
    const auto epsilon = static_cast<float>(of.epsilon);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        float g = gradient[i];
        if (of.weight_decay != 0) g = g + penalty * state.master[i];
        state.m[i] = state.m[i] + g * g;
        const float moved = step_size * g;
        state.master[i] = state.master[i] + moved / (std::sqrt(state.m[i]) + epsilon);
    }
}

}  // namespace

std::uint32_t ReferenceOptimizer::moments() const {
    if (kind == Kind::adamw || kind == Kind::adam) return 2;
    return kind == Kind::sgd && momentum == 0 ? 0 : 1;
}

void ReferenceOptimizer::begin(ReferenceState& state) const {
    if (moments() > 0)
        state.m.assign(state.master.size(), kind == Kind::adagrad ? static_cast<float>(initial_accumulator) : 0.0F);
    if (moments() > 1) state.v.assign(state.master.size(), 0);
}

void ReferenceOptimizer::update(ReferenceState& state, std::span<const float> gradient, std::uint64_t step,
                                double learning_rate) const {
    const auto t = static_cast<double>(step);
    if (kind == Kind::adamw || kind == Kind::adam) adam(*this, state, gradient, t, learning_rate);
    if (kind == Kind::sgd) sgd(*this, state, gradient, t, learning_rate);
    if (kind == Kind::lion) lion(*this, state, gradient, learning_rate);
    if (kind == Kind::adagrad) adagrad(*this, state, gradient, t, learning_rate);
}

}  // namespace penstock::testing
