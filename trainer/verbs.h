// The verbs of the program `penstock`, in one list. Those that compute are a half that the linker chooses:
// engine_verbs.cpp, or engine_verbs_none.cpp, which refuses them.
#pragma once

#include "aio/words/error.h"

#include <functional>
#include <vector>

namespace CLI {
class App;
}

namespace penstock::trainer {

class Console;
class StopSignals;

struct Verb {
    const CLI::App* words;  // its part of the command line; the App that it was added to owns it
    std::function<ExitCode(Console&, StopSignals&)>
        run;  // throws Error, and what torch throws. REQUIRES: it was parsed
};

// Adds all of them to `app`, in the order of its help.
std::vector<Verb> add_verbs(CLI::App& app);

Verb add_train(CLI::App& app);
Verb add_plan(CLI::App& app);

}  // namespace penstock::trainer
