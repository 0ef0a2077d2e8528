#include "zero_infinity/forecast/step_forecast.h"

#include "zero_infinity/forecast/step_replay.h"

namespace penstock::zero {
namespace {

constexpr std::uint64_t steady_steps = 2;  // until the steps are alike

StepForecast mean_of(const StepForecast& each, double each_weight, const StepForecast& other, double other_weight) {
    StepForecast mean;
    for (double StepForecast::*part :
         {&StepForecast::seconds, &StepForecast::forward, &StepForecast::backward, &StepForecast::update,
          &StepForecast::commit, &StepForecast::wait_weights, &StepForecast::wait_tiles, &StepForecast::wait_spills,
          &StepForecast::compute, &StepForecast::updating, &StepForecast::reading, &StepForecast::writing,
          &StepForecast::driver, &StepForecast::lost, &StepForecast::read_bytes, &StepForecast::write_bytes})
        mean.*part = each.*part * each_weight + other.*part * other_weight;
    return mean;
}

StepForecast steady_step(const StepSetting& setting, std::span<const UnitSeconds> seconds, const HostSeconds& host,
                         const DeviceRates& rates, bool commits) {
    StepReplay replay(setting, seconds, host, rates);
    for (std::uint64_t i = 0; i < steady_steps; ++i) replay.step(commits);
    return replay.step(commits);
}

}  // namespace

StepForecast forecast_step(const StepSetting& setting, std::span<const UnitSeconds> seconds, const HostSeconds& host,
                           const DeviceRates& rates) {
    const std::uint64_t steps = setting.durability.commit_steps;
    const double committing = steps == 0 ? 0 : 1 / static_cast<double>(steps);
    const auto of = [&](bool commits) { return steady_step(setting, seconds, host, rates, commits); };
    if (steps == 1) return of(true);
    if (steps == 0) return of(false);
    return mean_of(of(true), committing, of(false), 1 - committing);
}

}  // namespace penstock::zero
