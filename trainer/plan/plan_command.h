// The command line of `penstock plan`.
#pragma once

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace penstock::trainer {

class Console;

// Adds the verb to `app`, and returns what makes the plan: what is to be printed. Call it only when "plan" was parsed.
std::function<std::string(Console&)> add_plan_verb(CLI::App& app);

}  // namespace penstock::trainer
