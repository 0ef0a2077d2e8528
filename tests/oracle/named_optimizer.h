// An optimizer by the words that the oracle and its golden file use: "sgd", {"momentum=0.9", "nesterov=1"}.
#pragma once

#include "zero_infinity/optimizer/optimizer.h"

#include <memory>
#include <string>
#include <vector>

namespace penstock::oracle {

// Names are those of the makers of optimizers.h and of the members of their options. Throws Error (usage) on others.
std::unique_ptr<zero::Optimizer> named_optimizer(const std::string& name, const std::vector<std::string>& options);

}  // namespace penstock::oracle
