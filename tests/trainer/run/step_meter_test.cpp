#include "trainer/run/step_meter.h"

#include <gtest/gtest.h>

#include <chrono>

namespace penstock::trainer {
namespace {

using std::chrono::seconds;

TrainConfig ten_steps() {
    TrainConfig config;
    config.steps = 10;
    config.micro_batch_rows = 2;
    config.model.context = 8;
    config.session.host_budget_bytes = 1 << 20;
    return config;
}

RunProgress at(std::int64_t step) {
    return {.state = {.step = step}, .committed = step};
}

const engine::SessionInfo session{.pool_budget_bytes = 1 << 20};

TEST(StepMeter, ARecordHasWhatTheStepAddedToTheCounters) {
    const TrainConfig config = ten_steps();
    StepMeter meter(config, session, {.read_bytes = 100, .write_bytes = 10, .waits = {.weights = seconds(3)}});
    const StepRecord first =
        meter.measure(at(4), {.loss = 5, .gradient_norm = 2, .activation_bytes = 11, .forward = seconds(1)}, 2,
                      {.read_bytes = 130, .write_bytes = 15, .waits = {.weights = seconds(4)}, .pool_peak_bytes = 7});
    EXPECT_EQ(first.step, 4);
    EXPECT_EQ(first.steps, 10);
    EXPECT_EQ(first.committed, 4);
    EXPECT_EQ(first.read_bytes, 30U);
    EXPECT_EQ(first.write_bytes, 5U);
    EXPECT_EQ(first.wait_weights_seconds, 1);
    EXPECT_EQ(first.forward_seconds, 1);
    EXPECT_EQ(first.gradient_norm, 2);
    EXPECT_EQ(first.tokens, 16);
    EXPECT_EQ(first.pool_peak_bytes, 7U);
    EXPECT_EQ(first.activation_bytes, 11U);
    EXPECT_EQ(first.pool_budget_bytes, 1U << 20);
    const StepRecord second =
        meter.measure(at(5), {.loss = 5}, 2, {.read_bytes = 131, .write_bytes = 15, .waits = {.weights = seconds(4)}});
    EXPECT_EQ(second.read_bytes, 1U);
    EXPECT_EQ(second.write_bytes, 0U);
    EXPECT_EQ(second.wait_weights_seconds, 0);
}

TEST(StepMeter, LossAndTimeLeftAreSmoothedFromTheFirstStepOfTheProcess) {
    const TrainConfig config = ten_steps();
    StepMeter meter(config, session, {});
    const StepRecord first = meter.measure(at(4), {.loss = 5}, 2, {});
    EXPECT_EQ(first.smooth_loss, 5);
    EXPECT_EQ(first.seconds_left, 2 * 6);
    const StepRecord second = meter.measure(at(5), {.loss = 4}, 3, {});
    EXPECT_DOUBLE_EQ(second.smooth_loss, 0.9 * 5 + 0.1 * 4);
    EXPECT_DOUBLE_EQ(second.seconds_left, (0.8 * 2 + 0.2 * 3) * 5);
}

TEST(StepMeter, TotalsAreOfTheStepsAlone) {
    const TrainConfig config = ten_steps();
    StepMeter meter(config, session, {.read_bytes = 100, .write_bytes = 10});
    EXPECT_TRUE(meter.totals().seconds.empty());
    meter.measure(at(1), {}, 2, {.read_bytes = 130, .write_bytes = 15});
    meter.measure(at(2), {}, 3, {.read_bytes = 140, .write_bytes = 17});
    EXPECT_EQ(meter.totals().seconds, (std::vector<double>{2, 3}));
    EXPECT_EQ(meter.totals().seconds_total, 5);
    EXPECT_EQ(meter.totals().read_bytes, 40U);
    EXPECT_EQ(meter.totals().write_bytes, 7U);
}

}  // namespace
}  // namespace penstock::trainer
