// The command line of `penstock ckpt`.
#pragma once

#include "trainer/ckpt/ckpt.h"

#include <functional>

namespace CLI {
class App;
}

namespace penstock::trainer {

// Adds the verb with its subcommands to `app`, and returns what runs the one that was given. Call it only when "ckpt"
// was parsed.
std::function<CkptResult(Console&)> add_ckpt_verb(CLI::App& app);

}  // namespace penstock::trainer
