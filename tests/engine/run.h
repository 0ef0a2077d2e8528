// One training run through a Session, for tests: some steps in a directory of its own, and what it left behind.
#pragma once

#include "tests/engine/snapshot.h"
#include "tests/engine/toy_model.h"
#include "zero_infinity/engine/session.h"
#include "zero_infinity/optimizers.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace penstock::testing {

// A directory under the current one, removed with its contents at the end.
class TemporaryDirectory {
   public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    const std::string& path() const noexcept { return path_; }

   private:
    std::string path_;
};

struct RunOptions {
    ToyOptions model;
    SessionOptions session;
    std::uint64_t steps = 20;
    std::size_t micro_batches = 1;
    double learning_rate = 3e-3;
    std::function<ParameterGroups()> optimizers = [] { return ParameterGroups(make_adamw({})); };
};

// Session options that every test starts from: a small tile, so that units have several, and a budget with room.
RunOptions toy_run(const std::string& directory);

struct RunResult {
    std::vector<double> losses;
    std::vector<double> norms;
    std::uint64_t read_bytes = 0;  // during the steps
    std::uint64_t write_bytes = 0;
    Session::StepBytes predicted;  // of one step
    std::uint64_t trainable_numel = 0;
};

// Trains up to step `options.steps`, from wherever the directory's store is.
RunResult run_toy(const RunOptions& options);

// The micro-batches of a step: the same for the product and the reference.
std::vector<Bundle> toy_step(std::uint64_t step, const RunOptions& options);

}  // namespace penstock::testing
