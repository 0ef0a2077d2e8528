// One training run through a Session, for tests: some steps in a directory of its own, and what it left behind.
#pragma once

#include "tests/temporary_directory.h"
#include "tests/zero_infinity/engine/snapshot.h"
#include "tests/zero_infinity/engine/toy_model.h"
#include "zero_infinity/engine/session.h"
#include "zero_infinity/optimizer/optimizers.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::testing {

struct RunOptions {
    ToyOptions model;
    engine::SessionOptions session;
    std::uint64_t steps = 20;
    std::size_t micro_batches = 1;
    double learning_rate = 3e-3;
    std::function<double(std::uint64_t step)> schedule;  // empty: the rate is the same in each step
    double rate(std::uint64_t step) const { return schedule ? schedule(step) : learning_rate; }
    std::function<zero::ParameterGroups()> optimizers = [] { return zero::ParameterGroups(zero::make_adamw({})); };
};

// Session options that every test starts from: a small tile, so that units have several, and a budget with room.
RunOptions toy_run(const std::string& directory);
// Its host budget: what its units need, and so much more, in which units are kept.
void fill_host_budget(RunOptions& options, std::uint64_t bytes);

struct RunResult {
    std::vector<double> losses;
    std::vector<double> norms;
    std::uint64_t updated_again = 0;  // steps
    std::uint64_t away_bytes = 0;     // of activations, that went to NVMe
    std::size_t given_up = 0;         // graphs
    std::uint64_t read_bytes = 0;     // by the steps, and by settling
    std::uint64_t write_bytes = 0;
    // The same as the kernel's block layer counted it (/proc/self/io); both 0 where the file system is not counted.
    std::uint64_t kernel_read_bytes = 0;
    std::uint64_t kernel_write_bytes = 0;
    zero::StepBytes predicted;  // of one step
    double planned_bytes = 0;   // per step
    double formula_bytes = 0;   // per parameter and step
    bool resumed = false;
    std::uint64_t trainable_numel = 0;
};

// Trains up to step `options.steps`, from wherever the directory's store is, and settles unless told not to.
enum class AtEnd : std::uint8_t { settle, leave };
RunResult run_toy(const RunOptions& options, AtEnd at_end = AtEnd::settle);

// The micro-batches of a step: the same for the product and the reference.
std::vector<engine::Bundle> toy_step(std::uint64_t step, const RunOptions& options);

}  // namespace penstock::testing
