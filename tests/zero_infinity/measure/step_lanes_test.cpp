#include "zero_infinity/measure/step_lanes.h"

#include "zero_infinity/measure/forecast_report.h"

#include <gtest/gtest.h>

#include <string>

namespace penstock::zero {
namespace {

constexpr DeviceRates rates{.read = 10, .write = 10, .both = 20};
constexpr HostSeconds shared{.driver_per_byte = 0, .commit = 0, .rest = 0, .threads = 2, .cores = 2};

StepForecast step_of(double seconds, double compute, double read_bytes) {
    StepForecast step;
    step.seconds = seconds;
    step.compute = compute;
    step.updating = 1;
    step.driver = 0.5;
    step.read_bytes = read_bytes;
    step.write_bytes = 10;
    return step;
}

TEST(StepLanes, TheLongerLaneDecidesUnlessTheStepIsClearlyLongerThanBoth) {
    EXPECT_EQ(lanes_of(step_of(10.5, 2, 100), shared, rates).bottleneck, Bottleneck::nvme);
    EXPECT_EQ(lanes_of(step_of(21, 18.5, 100), shared, rates).bottleneck, Bottleneck::processor);
    EXPECT_EQ(lanes_of(step_of(10.5, 8.5, 100), shared, rates).bottleneck, Bottleneck::both);
    EXPECT_EQ(lanes_of(step_of(12, 8.5, 100), shared, rates).bottleneck, Bottleneck::order);
}

TEST(StepLanes, TheDriverIsOfTheProcessorWhereItHasNoCoreOfItsOwn) {
    EXPECT_DOUBLE_EQ(lanes_of(step_of(10, 2, 100), shared, rates).processor, 2 + 1 + 0.5);
    HostSeconds alone = shared;
    alone.cores = 3;
    EXPECT_DOUBLE_EQ(lanes_of(step_of(10, 2, 100), alone, rates).processor, 2 + 1);
}

// Then the lanes are equal.
TEST(StepLanes, SoMuchComputeHidesTheNvme) {
    const StepLanes lanes = lanes_of(step_of(10, 2, 100), shared, rates);
    EXPECT_DOUBLE_EQ(lanes.hiding_compute * 2 + 1 + 0.5, lanes.nvme);
    EXPECT_EQ(lanes_of(step_of(10, 2, 1), shared, rates).hiding_compute, 0);
    EXPECT_EQ(lanes_of(step_of(10, 0, 100), shared, rates).hiding_compute, 0);
}

TEST(ForecastReport, SaysTokensWhereTheyAreKnownAndDaysWhereTheEnduranceIs) {
    ToldStep told{.step = step_of(10, 2, 100), .lanes = lanes_of(step_of(10, 2, 100), shared, rates)};
    EXPECT_EQ(report_of(told).find("tokens"), std::string::npos);
    EXPECT_NE(report_of(told).find("times this batch"), std::string::npos) << report_of(told);
    EXPECT_EQ(report_of(told).find("days"), std::string::npos);
    told.tokens = 100;
    told.endurance_bytes = 864000;
    EXPECT_DOUBLE_EQ(told.tokens_that_hide_nvme(), 425);
    EXPECT_DOUBLE_EQ(told.written_bytes_per_day(), 86400);
    EXPECT_DOUBLE_EQ(told.days_to_endurance(), 10);
    EXPECT_NE(report_of(told).find("10 tokens/s"), std::string::npos) << report_of(told);
    EXPECT_NE(report_of(told).find("425 tokens per step"), std::string::npos) << report_of(told);
    EXPECT_NE(report_of(told).find("10 days"), std::string::npos) << report_of(told);
}

TEST(ForecastReport, AStepThatWritesNothingWearsNothing) {
    ToldStep told{.step = step_of(10, 2, 100), .endurance_bytes = 1e12};
    told.step.write_bytes = 0;
    EXPECT_EQ(told.days_to_endurance(), 0);
}

}  // namespace
}  // namespace penstock::zero
