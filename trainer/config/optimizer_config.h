// The optimizer and its parameter groups, from the configuration.
#pragma once

#include "trainer/config/settings.h"
#include "zero_infinity/plan/parameter_groups.h"

#include <string>
#include <vector>

namespace penstock::trainer {

// Every option of every optimizer; each optimizer reads its own. Names and meaning are DeepSpeed's, else torch's.
struct OptimizerOptions {
    double learning_rate = 1e-3;
    double beta1 = 0.9;
    double beta2 = 0.999;
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
    std::string type = "AdamW";
    OptimizerOptions others;  // of parameters in no group
    std::vector<OptimizerGroup> groups;
};

// Fills the defaults that depend on optimizer.type into `settings`. Throws Error (usage) on a parameter that the type
// does not have, with the list of those it has.
OptimizerConfig optimizer_config(Settings& settings);

// Throws Error (usage) where options make no sense together, naming the option.
zero::ParameterGroups make_optimizers(const OptimizerConfig& config);

}  // namespace penstock::trainer
