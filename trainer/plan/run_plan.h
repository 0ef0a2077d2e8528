// What a run is going to need and how long its steps will take, before anything of it is begun.
//
// Bytes are exact: they come from the plan that the run itself makes (SessionPlan). Times are a forecast
// (StepForecast) from what this machine gave within the last seconds, for the settings as they are and for others.
#pragma once

#include "trainer/config/config.h"
#include "trainer/plan/measured_units.h"
#include "trainer/plan/step_activations.h"
#include "zero_infinity/measure/forecast_report.h"
#include "zero_infinity/measure/machine_rates.h"
#include "zero_infinity/plan/ranks/ranks_plan.h"
#include "zero_infinity/plan/session_plan.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace penstock::trainer {

// A configuration file's text, its name for messages, and KEY=VALUE overrides; of a run of so many ranks.
struct ConfigSource {
    std::string text;
    std::string file;
    std::vector<std::string> overrides;
    zero::RankCount count = {};
    TrainConfig with(const std::vector<std::string>& changes) const;  // throws Error (usage)
};

// All on the machine that plans.
struct Measurements {
    zero::MachineRates rates;
    MeasuredUnits units;
};

// One way to run it.
struct PlannedWay {
    std::vector<std::string> changes;  // KEY=VALUE beside the overrides; empty: as it is
    TrainConfig config;
    std::unique_ptr<zero::SessionPlan> plan;
    std::optional<zero::StepForecast> forecast;  // where times are known
    KeptGraphs kept;                             // without bytes before units are measured
    zero::ShelfBytes away;                       // of activations, in a step
};

// What a run of this configuration tells its session, which has that room.
zero::ModelSpec model_of(const TrainConfig& config);
zero::Partition partition_of(const TrainConfig& config);  // of any of its ranks: they are alike
zero::CoreOptions planned_options(const engine::SessionOptions& options, const zero::MachineRoom& room);

// Of several ranks each takes it, and none of their times is known.
struct RunPlan {
    PlannedWay way;
    zero::RankCount count = {};
    std::uint64_t passes() const { return static_cast<std::uint64_t>(way.config.micro_batches); }  // of a step
    std::vector<PlannedWay> others;  // that are allowed and fit, the fastest first
    std::uint64_t parameters = 0;
    std::uint64_t trainable = 0;
    std::optional<Measurements> measured;
    std::string unmeasured;      // why times are not known
    double endurance_bytes = 0;  // 0: nobody knows

    double bytes_per_parameter() const;      // and step
    std::uint64_t activation_bytes() const;  // inputs, and graphs that are kept, as far as these are known
    // Else as if none were kept, where a budget bounds them, and without what they take.
    bool graphs_are_known() const;
    zero::ToldStep step() const;  // REQUIRES: measured
};

struct PlanQuestion {
    ConfigSource source;
    bool measured = true;                                  // times are wanted
    double seconds = 0.4;                                  // of each measurement; all take some thirty times as long
    double endurance_bytes = 0;                            // that the devices are rated to have written; 0: not known
    std::function<void(const std::string& what)> telling;  // what is measured now
};

// Throws Error: usage; does_not_fit, with the table of uses and the lightest settings that would fit, or with that of
// ranks of one machine that do not fit together; storage, of the devices.
RunPlan make_run_plan(const PlanQuestion& question);

}  // namespace penstock::trainer
