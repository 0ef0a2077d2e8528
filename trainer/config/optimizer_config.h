// The optimizer and its parameter groups, from the configuration.
#pragma once

#include "aio/words/enum_words.h"
#include "trainer/config/settings.h"
#include "zero_infinity/layout/parameter_groups.h"

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace penstock::trainer {

enum class OptimizerType : std::uint8_t { adamw, adam, sgd, lion, adagrad };
constexpr auto words_of(OptimizerType) noexcept {
    return std::array{Word{OptimizerType::adamw, "AdamW"}, Word{OptimizerType::adam, "Adam"},
                      Word{OptimizerType::sgd, "SGD"}, Word{OptimizerType::lion, "Lion"},
                      Word{OptimizerType::adagrad, "Adagrad"}};
}

// Every option of every optimizer; each optimizer reads its own. Names and meaning are DeepSpeed's, else torch's.
struct OptimizerOptions {
    double learning_rate = 1e-3;
    std::array<double, 2> betas = {0.9, 0.999};
    double epsilon = 1e-8;
    double weight_decay = 0;
    bool adam_w_mode = true;  // type "Adam": decoupled weight decay, as DeepSpeed's default; false: an L2 penalty
    double momentum = 0;
    double dampening = 0;
    bool nesterov = false;
    double lr_decay = 0;
    double initial_accumulator = 0;
};

struct OptimizerGroup {
    std::string pattern;
    OptimizerOptions options;  // what the group does not say is the optimizer's
};

struct OptimizerConfig {
    OptimizerType type = OptimizerType::adamw;
    OptimizerOptions others;  // of parameters in no group
    std::vector<OptimizerGroup> groups;
};

// The parameters that nobody gives and whose defaults depend on optimizer.type. Throws Error (usage) on a parameter
// that the type does not have, with the list of those it has.
std::map<std::string, SettingValue> optimizer_defaults(const Settings& settings);

// The groups of the settings: what one does not say is as in `others`. Throws Error (usage).
std::vector<OptimizerGroup> optimizer_groups(const Settings& settings, const OptimizerOptions& others);

// Throws Error (usage) where options make no sense together, naming the option.
zero::ParameterGroups make_optimizers(const OptimizerConfig& config);

}  // namespace penstock::trainer
