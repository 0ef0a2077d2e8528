// The optimizer and its parameter groups, from the configuration.
#pragma once

#include "trainer/config/settings.h"
#include "zero_infinity/layout/parameter_groups.h"
#include "zero_infinity/optimizer/optimizer_kind.h"

#include <map>
#include <string>
#include <vector>

namespace penstock::trainer {

// optimizer.params.
struct OptimizerParams : zero::OptimizerOptions {
    double learning_rate = 1e-3;
    bool adam_w_mode = true;  // type "Adam": decoupled weight decay, as DeepSpeed's default; false: an L2 penalty
};

struct OptimizerGroup {
    std::string pattern;
    OptimizerParams options;  // what the group does not say is the optimizer's
};

struct OptimizerConfig {
    const zero::OptimizerKind* kind = &zero::optimizer_kinds.front();
    OptimizerParams others;  // of parameters in no group
    std::vector<OptimizerGroup> groups;
};

// The parameters that nobody gives and whose defaults depend on optimizer.type. Throws Error (usage) on a parameter
// that the type does not have, with the list of those it has.
std::map<std::string, SettingValue> optimizer_defaults(const Settings& settings);

// The groups of the settings: what one does not say is as in `others`. Throws Error (usage).
std::vector<OptimizerGroup> optimizer_groups(const Settings& settings, const OptimizerParams& others);

// Throws Error (usage) where options make no sense together, naming the option.
zero::ParameterGroups make_optimizers(const OptimizerConfig& config);

}  // namespace penstock::trainer
