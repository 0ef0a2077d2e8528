// Steps of `penstock train`, as users have them: one store, on which every contender goes on for some steps in its
// turn.
#pragma once

#include "bench/harness/bench_file.h"
#include "bench/harness/interruption.h"
#include "bench/step/step_way.h"
#include "trainer/config/config.h"
#include "zero_infinity/codec/codec.h"
#include "zero_infinity/plan/traffic.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace penstock::bench {

struct StepBenchOptions {
    std::string directory;
    std::string config;  // a file; empty: a GPT of the sizes below, AdamW, fp32
    std::int64_t layers = 24;
    std::int64_t hidden = 1024;
    std::int64_t tokens = 128;  // of one row
    std::uint64_t host_budget_bytes = 3ULL << 30;
    std::vector<std::string> overrides;  // "key=value"
    std::vector<StepWay> orders;
    unsigned rounds = 5;
    unsigned steps = 4;    // measured, of one turn
    unsigned warm_up = 2;  // before them, in each turn
    double seconds = 1;    // of reads, of writes, of both, in each round
};

// Medians over the steps of one turn; in seconds, but for the bytes.
struct StepTurn {
    double seconds = 0;  // of the mean step where some are updated again: no median knows of one in twenty
    double forward = 0;
    double backward = 0;
    double update = 0;
    double read_bytes = 0;
    double write_bytes = 0;
    double peak_rss_bytes = 0;
    double updated_again = 0;  // share of the steps
};

// Owned by one thread. Everything it makes lies in a directory of its own, which is removed with it.
class StepRuns {
   public:
    // Makes tokens and configuration, and the store by a first step. Throws Error: usage (the configuration; what
    // `penstock train` refuses), storage, interrupted.
    StepRuns(const StepBenchOptions& options, Interruption& stop);
    ~StepRuns();
    StepRuns(const StepRuns&) = delete;
    StepRuns& operator=(const StepRuns&) = delete;

    StepTurn turn(StepWay way);
    // What `penstock plan` says now that a step takes; nothing where it forecasts none.
    std::optional<double> planned_seconds(StepWay way);
    StepTurn turn_in_host_memory();  // weights, gradients and states; nothing is committed

    const trainer::TrainConfig& config() const noexcept { return config_; }
    zero::StateFormat format() const;
    double trainable_numel() const noexcept { return static_cast<double>(trainable_numel_); }
    const std::string& program() const noexcept { return program_; }
    std::string command() const;  // of a turn, for people

   private:
    void write_inputs();
    std::vector<std::string> settings_of(StepWay way) const;
    std::vector<std::string> arguments(const std::string& verb, const std::vector<std::string>& more) const;
    std::string run(const std::vector<std::string>& arguments);  // standard output
    StepTurn train(std::uint64_t steps, const std::vector<std::string>& more);

    const StepBenchOptions& options_;
    Interruption& stop_;
    BenchFolder folder_;
    std::string program_;
    std::string config_file_;
    std::vector<std::string> overrides_;
    trainer::TrainConfig config_;
    std::uint64_t trainable_numel_ = 0;
    std::uint64_t committed_ = 0;  // steps of the store
};

}  // namespace penstock::bench
