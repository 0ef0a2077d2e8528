// The optimizers that come with the library as one table: what clients ask who are given an optimizer by its word or by
// its number, and its options by name. A further one is a row here.
#pragma once

#include "zero_infinity/optimizer/optimizers.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace penstock::zero {

// The options of all of them; each reads those that its row names. DeepSpeed's meaning, else torch's.
struct OptimizerOptions {
    std::array<double, 2> betas = {0.9, 0.999};
    double epsilon = 1e-8;
    double weight_decay = 0;
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double lr_decay = 0;
    double initial_accumulator = 0;
};

struct OptimizerKind {
    std::string_view word;                   // of a configuration: DeepSpeed's, else torch's
    std::array<std::string_view, 4> params;  // those of optimizer.params that it has beside lr, then empty ones
    OptimizerOptions defaults;
    std::unique_ptr<Optimizer> (*make)(const OptimizerOptions& options);  // throws Error (usage)
};

// By the numbers of penstock_optimizer (capi/penstock_session.h), which stay as they are.
inline constexpr std::array optimizer_kinds{
    OptimizerKind{"AdamW",
                  {"betas", "eps", "weight_decay"},
                  {},
                  [](const OptimizerOptions& o) {
                      return make_adamw({o.betas[0], o.betas[1], o.epsilon, o.weight_decay});
                  }},
    OptimizerKind{"Adam",
                  {"betas", "eps", "weight_decay"},
                  {},
                  [](const OptimizerOptions& o) {
                      return make_adam({o.betas[0], o.betas[1], o.epsilon, o.weight_decay});
                  }},
    OptimizerKind{"SGD",
                  {"weight_decay", "momentum", "dampening", "nesterov"},
                  {},
                  [](const OptimizerOptions& o) {
                      return make_sgd({o.momentum, o.dampening, o.weight_decay, o.nesterov});
                  }},
    OptimizerKind{"Adagrad",
                  {"eps", "weight_decay", "lr_decay", "initial_accumulator_value"},
                  {.epsilon = 1e-10},
                  [](const OptimizerOptions& o) {
                      return make_adagrad({o.lr_decay, o.weight_decay, o.initial_accumulator, o.epsilon});
                  }},
    OptimizerKind{"Lion", {"betas", "weight_decay"}, {.betas = {0.9, 0.99}}, [](const OptimizerOptions& o) {
                      return make_lion({o.betas[0], o.betas[1], o.weight_decay});
                  }}};

// Their words, for a key that is one of them.
inline constexpr auto optimizer_words = [] {
    std::array<std::string_view, optimizer_kinds.size()> words;
    std::ranges::transform(optimizer_kinds, words.begin(), &OptimizerKind::word);
    return words;
}();

// Null: there is none of that word.
constexpr const OptimizerKind* find_optimizer(std::string_view word) noexcept {
    const auto* found = std::ranges::find(optimizer_kinds, word, &OptimizerKind::word);
    return found == optimizer_kinds.end() ? nullptr : found;
}

}  // namespace penstock::zero
