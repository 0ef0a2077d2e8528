// The five optimizers once more, from their papers and torch's code, sharing nothing with the product.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace penstock::testing {

// The fp32 master of one parameter and the moments that its optimizer keeps; the others are empty.
struct ReferenceState {
    std::vector<float> master, m, v;
    bool operator==(const ReferenceState&) const = default;
};

struct ReferenceOptimizer {
    enum class Kind : std::uint8_t { adamw, adam, sgd, lion, adagrad } kind = Kind::adamw;
    double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, weight_decay = 0.01;
    double momentum = 0, dampening = 0;  // of sgd
    bool nesterov = false;
    double lr_decay = 0, initial_accumulator = 0;  // of adagrad

    std::uint32_t moments() const;
    void begin(ReferenceState& state) const;  // moments of a state that has its master
    void update(ReferenceState& state, std::span<const float> gradient, std::uint64_t step, double learning_rate) const;
};

}  // namespace penstock::testing
