#include "trainer/config/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::trainer {
namespace {

constexpr double pi = 3.14159265358979323846;

TEST(Schedule, ConstantIsTheOptimizersRate) {
    const ScheduleOptions options{.kind = ScheduleKind::constant, .learning_rate = 0.25};
    EXPECT_EQ(learning_rate(options, 1), 0.25);
    EXPECT_EQ(learning_rate(options, 1000000), 0.25);
}

TEST(Schedule, LinearWarmupStartsTwiceAtTheMinimumAsInDeepSpeed) {
    const ScheduleOptions options{.kind = ScheduleKind::warmup,
                                  .warmup_min_lr = 0.1,
                                  .warmup_max_lr = 0.5,
                                  .warmup_num_steps = 4,
                                  .warmup_type = WarmupCourse::linear};
    const double expected[] = {0.1, 0.1, 0.2, 0.3, 0.4, 0.5, 0.5, 0.5};
    for (int step = 1; step <= 8; ++step) EXPECT_DOUBLE_EQ(learning_rate(options, step), expected[step - 1]) << step;
}

TEST(Schedule, LogarithmicWarmup) {
    const ScheduleOptions options{
        .kind = ScheduleKind::warmup, .warmup_min_lr = 0, .warmup_max_lr = 1, .warmup_num_steps = 10};
    EXPECT_EQ(learning_rate(options, 2), 0);                              // ln 1
    EXPECT_DOUBLE_EQ(learning_rate(options, 3), 0.30102999566398119521);  // ln 2 / ln 10
    EXPECT_DOUBLE_EQ(learning_rate(options, 11), 1);                      // ln 10 / ln 10, still in the warm-up
    EXPECT_EQ(learning_rate(options, 12), 1);
}

TEST(Schedule, AWarmupOfOneStepCountsAsTwo) {
    const ScheduleOptions options{.kind = ScheduleKind::warmup, .warmup_max_lr = 1, .warmup_num_steps = 1};
    EXPECT_EQ(learning_rate(options, 2), 0);
    EXPECT_DOUBLE_EQ(learning_rate(options, 3), 1);  // ln 2 / ln 2
    EXPECT_TRUE(std::isfinite(learning_rate(options, 4)));
}

TEST(Schedule, DecayGoesToTheMinimumAndStaysThere) {
    const ScheduleOptions options{.kind = ScheduleKind::warmup_decay,
                                  .warmup_min_lr = 0.1,
                                  .warmup_max_lr = 1.1,
                                  .warmup_num_steps = 2,
                                  .warmup_type = WarmupCourse::linear,
                                  .total_num_steps = 6};
    // Index: -1, 0, 1 warm up; 2 → (6-2)/4, 3 → 3/4, …, 6 → 0, and never below.
    const double expected[] = {0.1, 0.1, 0.6, 1.1, 0.85, 0.6, 0.35, 0.1, 0.1, 0.1};
    for (int step = 1; step <= 10; ++step) EXPECT_DOUBLE_EQ(learning_rate(options, step), expected[step - 1]) << step;
}

TEST(Schedule, CosineGoesToItsMinimumAndStaysThere) {
    const ScheduleOptions options{.kind = ScheduleKind::warmup_cosine,
                                  .learning_rate = 2,
                                  .warmup_num_steps = 2,
                                  .warmup_type = WarmupCourse::linear,
                                  .total_num_steps = 6,
                                  .warmup_min_ratio = 0.25,
                                  .cos_min_ratio = 0.5};
    EXPECT_EQ(learning_rate(options, 1), 0);                               // before the first batch
    EXPECT_DOUBLE_EQ(learning_rate(options, 2), 2 * 0.25);                 // index 0
    EXPECT_DOUBLE_EQ(learning_rate(options, 3), 2 * (0.25 + 0.5 * 0.75));  // index 1
    for (int index = 2; index < 6; ++index) {
        const double wave = (1 + std::cos(pi * (index - 2 + 1) / 4.0)) / 2;
        EXPECT_DOUBLE_EQ(learning_rate(options, index + 2), 2 * (0.5 + 0.5 * wave)) << index;
    }
    EXPECT_DOUBLE_EQ(learning_rate(options, 8), 2 * 0.5);
    EXPECT_DOUBLE_EQ(learning_rate(options, 100), 2 * 0.5);
}

}  // namespace
}  // namespace penstock::trainer
