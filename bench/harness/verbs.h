// The verbs of penstock-bench. Each adds its subcommand; what it measures runs when the command line has been parsed.
#pragma once

#include "bench/harness/report.h"

#include <functional>

namespace CLI {
class App;
}

namespace penstock::bench {

// A verb's work: fills the report; throws Error. Called once, after parsing, for the chosen verb.
using BenchRun = std::function<void(Report&)>;

BenchRun add_io_verb(CLI::App& app);         // NVMe against fio; --tune, --sustained
BenchRun add_transfer_verb(CLI::App& app);   // NVMe -> host -> device and back
BenchRun add_optimizer_verb(CLI::App& app);  // optimizers and codecs against a triad; --peers
BenchRun add_swap_verb(CLI::App& app);       // the store against plain transfers
BenchRun add_ranks_verb(CLI::App& app);      // who is where of several ranks, and how fast they speak
BenchRun add_step_verb(CLI::App& app);       // whole training steps against what device and compute allow

}  // namespace penstock::bench
